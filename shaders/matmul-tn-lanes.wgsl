// The product of matmul-tn.wgsl, bit for bit, for software adapters with subgroups of eight; the roles of a and b may
// be swapped, so the output has a stride for each index:
// out[i, j] = scale * sum_m a[m, i] * b[m, j]        (mode 0), or added to out[i, j] (mode 2).
// Each lane loads eight i of one token for all eight lanes, which read them from its register in the order of tokens.
// One accumulator an output, m ascending. A lane owns eight i by four j.
enable subgroups;

struct Params {
  rows: u32,
  iCount: u32,
  jCount: u32,
  aStride4: u32,
  aOffset4: u32,
  bStride4: u32,
  bOffset4: u32,
  iStride: u32,
  jStride: u32,
  outOffset: u32,
  mode: u32,
  scale: f32,
}

override MODE: u32 = 0u;  // as p.mode

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;  // [rows, aStride4] from aOffset4
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;  // [rows, bStride4] from bOffset4
@group(0) @binding(3) var<storage, read_write> out: array<f32>;  // i * iStride + j * jStride from outOffset

fn put(i: u32, j: u32, sum: f32) {
  if (j >= p.jCount) {
    return;
  }
  let at = p.outOffset + i * p.iStride + j * p.jStride;
  if (MODE == 0u) {
    out[at] = p.scale * sum;
  } else {
    out[at] = fma(p.scale, sum, out[at]);
  }
}

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let j4 = wg.x * 8u + thread;
  let i = wg.y * 8u;
  let right4 = p.bOffset4 + min(j4, (p.jCount + 3u) / 4u - 1u);
  let left4 = p.aOffset4 + wg.y * 2u;
  // The second quad may lie past the last i: then the first stands in for it, and what it gives is not stored.
  let next4 = select(left4, left4 + 1u, i + 4u < p.iCount);
  let last = p.rows - 1u;
  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  var acc4 = vec4<f32>(0.0);
  var acc5 = vec4<f32>(0.0);
  var acc6 = vec4<f32>(0.0);
  var acc7 = vec4<f32>(0.0);
  for (var first = 0u; first < p.rows; first += 8u) {
    let row = min(first + lane, last) * p.aStride4;
    let own0 = a[left4 + row];
    let own1 = a[next4 + row];
    let count = min(8u, p.rows - first);
    for (var t = 0u; t < count; t++) {
      let low = subgroupShuffle(own0, t);
      let high = subgroupShuffle(own1, t);
      let right = b[right4 + (first + t) * p.bStride4];
      acc0 = fma(vec4<f32>(low.x), right, acc0);
      acc1 = fma(vec4<f32>(low.y), right, acc1);
      acc2 = fma(vec4<f32>(low.z), right, acc2);
      acc3 = fma(vec4<f32>(low.w), right, acc3);
      acc4 = fma(vec4<f32>(high.x), right, acc4);
      acc5 = fma(vec4<f32>(high.y), right, acc5);
      acc6 = fma(vec4<f32>(high.z), right, acc6);
      acc7 = fma(vec4<f32>(high.w), right, acc7);
    }
  }
  // A loop, because stores are most of the code: the compiler's time goes with its length.
  let live = min(8u, p.iCount - i);
  for (var t = 0u; t < live; t++) {
    var sum = acc0;
    if (t == 1u) { sum = acc1; }
    if (t == 2u) { sum = acc2; }
    if (t == 3u) { sum = acc3; }
    if (t == 4u) { sum = acc4; }
    if (t == 5u) { sum = acc5; }
    if (t == 6u) { sum = acc6; }
    if (t == 7u) { sum = acc7; }
    put(i + t, j4 * 4u, sum.x);
    put(i + t, j4 * 4u + 1u, sum.y);
    put(i + t, j4 * 4u + 2u, sum.z);
    put(i + t, j4 * 4u + 3u, sum.w);
  }
}
