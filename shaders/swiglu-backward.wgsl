// With s = 1 / (1 + exp(-g)): dg = dOut * u * s * (1 + g * (1 - s)), du = dOut * g * s.
// dOut: [rows, c4 * 4]; gateUp and dGateUp: [rows, inStride4 * 4], g first, u from upOffset4. Elementwise.
struct Params {
  rows: u32,
  c4: u32,
  inStride4: u32,
  upOffset4: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gateUp: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dOut: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> dGateUp: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  let r = id.y;
  if (c >= p.c4 || r >= p.rows) {
    return;
  }
  let at = r * p.inStride4 + c;
  let g = gateUp[at];
  let u = gateUp[at + p.upOffset4];
  let d = dOut[r * p.c4 + c];
  let one = vec4<f32>(1.0);
  let s = one / (one + exp(min(-g, vec4<f32>(80.0))));
  dGateUp[at] = d * u * s * fma(g, one - s, one);
  dGateUp[at + p.upOffset4] = d * (g * s);
}
