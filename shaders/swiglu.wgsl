// out[r, c] = g / (1 + exp(-g)) * u  with g = gateUp[r, c], u = gateUp[r, upOffset + c]
// gateUp: [rows, inStride4 * 4]; out: [rows, c4 * 4]. Elementwise; exp's argument is held below 80, where 1 + exp is
// already exp, so that nothing overflows.
struct Params {
  rows: u32,
  c4: u32,
  inStride4: u32,
  upOffset4: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gateUp: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let c = id.x;
  let r = id.y;
  if (c >= p.c4 || r >= p.rows) {
    return;
  }
  let g = gateUp[r * p.inStride4 + c];
  let u = gateUp[r * p.inStride4 + p.upOffset4 + c];
  out[r * p.c4 + c] = g / (vec4<f32>(1.0) + exp(min(-g, vec4<f32>(80.0)))) * u;
}
