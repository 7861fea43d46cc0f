// out[r, c] = gain[c] * x[r, c] / sqrt(mean_c(x[r, c]^2) + eps)
// x, out: [rows, k4 * 4], padded with zeros; columns is the true width. One workgroup a row: lane l adds the squares of
// its columns in order, then every lane adds the 64 partial sums in order: the bits depend on the row alone.
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

var<workgroup> partial: array<f32, 64>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let r = wg.y * groups.x + wg.x;
  let base = min(r, p.rows - 1u) * p.k4;
  var sum = 0.0;
  for (var c = lane; c < p.k4; c += 64u) {
    let v = x[base + c];
    sum = fma(v.x, v.x, sum);
    sum = fma(v.y, v.y, sum);
    sum = fma(v.z, v.z, sum);
    sum = fma(v.w, v.w, sum);
  }
  partial[lane] = sum;
  workgroupBarrier();
  if (r >= p.rows) {
    return;
  }
  var total = 0.0;
  for (var i = 0u; i < 64u; i++) {
    total = total + partial[i];
  }
  let inverse = inverseSqrt(total / f32(p.columns) + p.eps);
  for (var c = lane; c < p.k4; c += 64u) {
    out[base + c] = gain[c] * (x[base + c] * inverse);
  }
}
