// stats[r, h] = (lse, delta) with delta = sum_d dOut[r, h, d] * out[r, h, d]: what the backward pass of attention needs
// of a row. LANES = headDim / 8 threads a head, eight products each, one fma a step; then the threads' sums, ascending.
struct Params {
  rows: u32,
  heads: u32,
  outStride4: u32,
}

override LANES: u32 = 16u;
override SIZE = LANES * 4u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dOut: array<vec4<f32>>;  // [rows, outStride4]
@group(0) @binding(2) var<storage, read> out: array<vec4<f32>>;  // [rows, outStride4]
@group(0) @binding(3) var<storage, read> lse: array<f32>;  // [rows, heads]
@group(0) @binding(4) var<storage, read_write> stats: array<vec2<f32>>;  // [rows, heads]

var<workgroup> sums: array<f32, SIZE>;

@compute @workgroup_size(LANES, 4)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let index = (wg.y * groups.x + wg.x) * 4u + local.y;
  let all = p.rows * p.heads;
  let at = min(index, all - 1u);
  let base = at / p.heads * p.outStride4 + at % p.heads * LANES * 2u + local.x * 2u;
  let a = dOut[base];
  let b = dOut[base + 1u];
  let x = out[base];
  let y = out[base + 1u];
  var sum = a.x * x.x;
  sum = fma(a.y, x.y, sum);
  sum = fma(a.z, x.z, sum);
  sum = fma(a.w, x.w, sum);
  sum = fma(b.x, y.x, sum);
  sum = fma(b.y, y.y, sum);
  sum = fma(b.z, y.z, sum);
  sums[local.y * LANES + local.x] = fma(b.w, y.w, sum);
  workgroupBarrier();
  if (local.x == 0u && index < all) {
    var delta = 0.0;
    for (var i = 0u; i < LANES; i++) {
      delta = delta + sums[local.y * LANES + i];
    }
    stats[index] = vec2<f32>(lse[index], delta);
  }
}
