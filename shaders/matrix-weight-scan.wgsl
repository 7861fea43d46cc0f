// Looks a packed bf16 matrix over before it serves the subgroup matrices. COUNT false: tally[0] = the largest
// magnitude's bits (15 of a bf16). COUNT true: tally[1] += elements that f16 cannot hold exactly after the shift of
// the exponent by `shift` - 256: too large, or bits lost below 2^-24. Maximum and integer sum: neither depends on
// order.
struct Params {
  words: u32,
  shift: u32,
}

override COUNT: bool = false;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> w: array<u32>;  // [words] x 2 bf16
@group(0) @binding(2) var<storage, read_write> tally: array<atomic<u32>, 2>;

var<workgroup> own: atomic<u32>;

fn inexact(half: u32) -> u32 {
  let magnitude = half & 0x7fffu;
  let exponent = i32(magnitude >> 7u);
  // An element is m * 2^(exponent - 134), eight bits in m (seven below the normal range).
  let m = select(magnitude & 0x7fu, (magnitude & 0x7fu) | 0x80u, exponent > 0);
  let power = max(exponent, 1) - 134 + (i32(p.shift) - 256);
  let lost = u32(clamp(-24 - power, 0, 31));
  let large = power + 7 > 15;
  return select(0u, 1u, m != 0u && (large || (m & ((1u << lost) - 1u)) != 0u));
}

@compute @workgroup_size(256)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  var found = 0u;
  for (var i = id.x; i < p.words; i += groups.x * 256u) {
    let word = w[i];
    if (COUNT) {
      found += inexact(word & 0xffffu) + inexact(word >> 16u);
    } else {
      found = max(found, max(word & 0x7fffu, (word >> 16u) & 0x7fffu));
    }
  }
  if (COUNT) {
    atomicAdd(&own, found);
  } else {
    atomicMax(&own, found);
  }
  workgroupBarrier();
  if (lane != 0u) {
    return;
  }
  if (COUNT) {
    atomicAdd(&tally[1], atomicLoad(&own));
  } else {
    atomicMax(&tally[0], atomicLoad(&own));
  }
}
