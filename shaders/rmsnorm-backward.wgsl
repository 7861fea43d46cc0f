// With i = 1 / sqrt(mean(x^2) + eps) and s = sum_c gain[c] * dOut[r, c] * x[r, c]:
// dx[r, c] = before + i * gain[c] * dOut[r, c] - x[r, c] * i^3 * s / columns, where before is dx[r, c] if ADD, else 0.
// The gain is frozen: it has no gradient. Reductions as in rmsnorm: bit-repeatable.
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

var<workgroup> squares: array<f32, 64>;
var<workgroup> products: array<f32, 64>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let r = wg.y * groups.x + wg.x;
  let base = min(r, p.rows - 1u) * p.k4;
  var square = 0.0;
  var product = 0.0;
  for (var c = lane; c < p.k4; c += 64u) {
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
  squares[lane] = square;
  products[lane] = product;
  workgroupBarrier();
  if (r >= p.rows) {
    return;
  }
  square = 0.0;
  product = 0.0;
  for (var i = 0u; i < 64u; i++) {
    square = square + squares[i];
    product = product + products[i];
  }
  let inverse = inverseSqrt(square / f32(p.columns) + p.eps);
  let pull = -(inverse * inverse * inverse * product / f32(p.columns));
  for (var c = lane; c < p.k4; c += 64u) {
    let own = inverse * (gain[c] * dOut[base + c]);
    let value = fma(vec4<f32>(pull), x[base + c], own);
    if (ADD) {
      dx[base + c] = dx[base + c] + value;
    } else {
      dx[base + c] = value;
    }
  }
}
