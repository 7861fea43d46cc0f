// The norm of rmsnorm.wgsl, bit for bit, for software adapters: see there. One thread a row and no workgroup memory,
// because a barrier costs more there than the whole norm. The 64 partial sums of that kernel are made one after the
// other and added in their order.
struct Params {
  rows: u32,
  columns: u32,
  k4: u32,
  eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, k4]
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;  // [k4]
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f32>>;  // [rows, k4]

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
) {
  let r = (wg.y * groups.x + wg.x) * 8u + thread;
  if (r >= p.rows) {
    return;
  }
  let base = r * p.k4;
  var total = 0.0;
  for (var l = 0u; l < min(64u, p.k4); l++) {
    var sum = 0.0;
    for (var c = l; c < p.k4; c += 64u) {
      let v = x[base + c];
      sum = fma(v.x, v.x, sum);
      sum = fma(v.y, v.y, sum);
      sum = fma(v.z, v.z, sum);
      sum = fma(v.w, v.w, sum);
    }
    total = total + sum;
  }
  let inverse = inverseSqrt(total / f32(p.columns) + p.eps);
  for (var c = 0u; c < p.k4; c++) {
    out[base + c] = gain[c] * (x[base + c] * inverse);
  }
}
