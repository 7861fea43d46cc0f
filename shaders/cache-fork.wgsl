// Copies the first `length` positions of a slot's 16-bit cache to another slot, bit for bit: k, v and their scales.
// One thread copies eight elements of k and of v; the first of a position copies the scales.
struct Params {
  source: u32,
  to: u32,
  kvHeads: u32,
  cacheLength: u32,
  length: u32,
  d8: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> k: array<vec4<u32>>;  // [slots, kvHeads, cacheLength, d8] x 8 f16
@group(0) @binding(2) var<storage, read_write> v: array<vec4<u32>>;  // the same
@group(0) @binding(3) var<storage, read_write> scales: array<vec2<u32>>;  // [slots, kvHeads, cacheLength]: k, v

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.y;
  let position = id.x / p.d8;
  if (position >= p.length) {
    return;
  }
  let from_ = (p.source * p.kvHeads + head) * p.cacheLength + position;
  let to = (p.to * p.kvHeads + head) * p.cacheLength + position;
  let part = id.x % p.d8;
  k[to * p.d8 + part] = k[from_ * p.d8 + part];
  v[to * p.d8 + part] = v[from_ * p.d8 + part];
  if (part == 0u) {
    scales[to] = scales[from_];
  }
}
