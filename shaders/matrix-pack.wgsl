// Rows of f32 to rows of f16 for the subgroup matrices: packed[m, k] = round(x[m, k] * 2^e), scales[m] = 2^-e, with e
// such that the row's largest magnitude lies in [2^14, 2^15). Rounding is to nearest, ties to even, done on integers
// except below 2^-14, where adding 0.5 does it. A row with a NaN or an Infinity becomes NaN throughout. One workgroup
// a row; the maximum does not depend on order: the bits depend on the row alone. Words past k are zero.
struct Params {
  rows: u32,
  k4: u32,
  xStride4: u32,
  packed2: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, xStride4], zero past the true width
@group(0) @binding(2) var<storage, read_write> packed: array<vec2<u32>>;  // [rows, packed2] x 4 f16
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;  // [rows]

var<workgroup> topBits: atomic<u32>;

fn roundHalf(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let magnitude = bits & 0x7fffffffu;
  let normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
  let small = bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u;
  return ((bits >> 16u) & 0x8000u) | select(small, normal, magnitude >= 0x38800000u);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let m = wg.y * groups.x + wg.x;
  if (m >= p.rows) {
    return;
  }
  let base = m * p.xStride4;
  var top = 0u;
  for (var k = lane; k < p.k4; k += 256u) {
    let bits = bitcast<vec4<u32>>(x[base + k]) & vec4<u32>(0x7fffffffu);
    top = max(top, max(max(bits.x, bits.y), max(bits.z, bits.w)));
  }
  atomicMax(&topBits, top);
  workgroupBarrier();
  let found = atomicLoad(&topBits);
  let exponent = found >> 23u;
  // 2^e has the biased exponent 268 - exponent; e is at most 126, and 0 for a row of zeros.
  let biased = select(clamp(268u - min(exponent, 254u), 14u, 253u), 127u, found == 0u);
  let factor = bitcast<f32>(biased << 23u);
  for (var k = lane; k < p.packed2; k += 256u) {
    var words = vec2<u32>(0u);
    if (k < p.k4) {
      let v = x[base + k] * factor;
      words = vec2<u32>(roundHalf(v.x) | (roundHalf(v.y) << 16u), roundHalf(v.z) | (roundHalf(v.w) << 16u));
    }
    if (exponent == 255u) {
      words = vec2<u32>(0x7e007e00u);
    }
    packed[m * p.packed2 + k] = words;
  }
  if (lane == 0u) {
    scales[m] = bitcast<f32>((254u - biased) << 23u);
  }
}
