// out = w in panels: the 256 terms of eight rows next to each other, then the next 256, then the next eight rows. A
// workgroup of a product of few rows then reads its weights from one end to the other.
struct Params {
  quads: u32,
  panels: u32,  // of a row
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;  // [rows, panels * 32] x 8 bf16
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;  // [rows / 8, panels, 8, 32] x 8 bf16

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  if (i >= p.quads) {
    return;
  }
  let panel = i / 256u;
  let row = panel / p.panels * 8u + i / 32u % 8u;
  out[i] = w[(row * p.panels + panel % p.panels) * 32u + i % 32u];
}
