// The gradient of rmsnorm-backward.wgsl, bit for bit, for software adapters: see there. One thread a row and no
// workgroup memory; the 64 partial sums of that kernel are made one after the other and added in their order.
struct Params {
  rows: u32,
  columns: u32,
  k4: u32,
  eps: f32,
}

override ADD: bool = true;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;  // [rows, k4]
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;  // [k4]
@group(0) @binding(3) var<storage, read> dOut: array<vec4<f32>>;  // [rows, k4]
@group(0) @binding(4) var<storage, read_write> dx: array<vec4<f32>>;  // [rows, k4]

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
  var squares = 0.0;
  var products = 0.0;
  for (var l = 0u; l < min(64u, p.k4); l++) {
    var square = 0.0;
    var product = 0.0;
    for (var c = l; c < p.k4; c += 64u) {
      let v = x[base + c];
      let d = gain[c] * dOut[base + c];
      square = fma(v.x, v.x, square);
      square = fma(v.y, v.y, square);
      square = fma(v.z, v.z, square);
      square = fma(v.w, v.w, square);
      product = fma(v.x, d.x, product);
      product = fma(v.y, d.y, product);
      product = fma(v.z, d.z, product);
      product = fma(v.w, d.w, product);
    }
    squares = squares + square;
    products = products + product;
  }
  let inverse = inverseSqrt(squares / f32(p.columns) + p.eps);
  let pull = -(inverse * inverse * inverse * products / f32(p.columns));
  for (var c = 0u; c < p.k4; c++) {
    let own = inverse * (gain[c] * dOut[base + c]);
    let value = fma(vec4<f32>(pull), x[base + c], own);
    if (ADD) {
      dx[base + c] = dx[base + c] + value;
    } else {
      dx[base + c] = value;
    }
  }
}
