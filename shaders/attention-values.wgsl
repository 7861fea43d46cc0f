// out[r, h, d] = sum_{j <= position(r)} s[r, h, j] * b[slot(r), j, h / group, d]
// s: probabilities (or score gradients), b: cached values (or keys). One thread a (row, head, four d), j ascending in
// quads whose tail is zero in s: adding 0 * b changes nothing, so the bits depend on the row and its cache alone.
struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  kvHeads: u32,
  d4: u32,
  outStride4: u32,
  cacheLength: u32,
  bStride4: u32,
  sStride4: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read> s: array<vec4<f32>>;  // [rows, heads, sStride4]
@group(0) @binding(3) var<storage, read> b: array<vec4<f32>>;  // [slots, cacheLength, bStride4]
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;  // [all rows, outStride4]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  let d = index % p.d4;
  let h = index / p.d4 % p.heads;
  let row = index / p.d4 / p.heads;
  if (row >= p.rows) {
    return;
  }
  let place = meta_[p.rowOffset + row];
  let source = (row * p.heads + h) * p.sStride4;
  let kv = h / (p.heads / p.kvHeads) * p.d4 + d;
  let cache = place.x * p.cacheLength;
  var acc = vec4<f32>(0.0);
  for (var quad = 0u; quad * 4u <= place.y; quad++) {
    let weight = s[source + quad];
    let j = quad * 4u;
    acc = fma(vec4<f32>(weight.x), b[(cache + j) * p.bStride4 + kv], acc);
    acc = fma(vec4<f32>(weight.y), b[(cache + min(j + 1u, place.y)) * p.bStride4 + kv], acc);
    acc = fma(vec4<f32>(weight.z), b[(cache + min(j + 2u, place.y)) * p.bStride4 + kv], acc);
    acc = fma(vec4<f32>(weight.w), b[(cache + min(j + 3u, place.y)) * p.bStride4 + kv], acc);
  }
  out[(p.rowOffset + row) * p.outStride4 + h * p.d4 + d] = acc;
}
