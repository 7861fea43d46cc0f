// s[r, h, j] = scale * sum_d a[r, h, d] * b[slot(r), j, h / group, d]   for j <= position(r); 0 in the rest of the last quad
// a: queries (or the gradient of the attention output), b: cached keys (or values), group = heads / kvHeads.
// The row length of s is a multiple of four. One thread a (row, head, four j), d ascending, one fma a step: the bits
// depend on the row and its cache alone. Rows start at rowOffset of a; s holds only this chunk of rows.
struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  kvHeads: u32,
  d4: u32,
  aStride4: u32,
  cacheLength: u32,
  bStride4: u32,
  sStride4: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read> a: array<vec4<f32>>;  // [all rows, aStride4]
@group(0) @binding(3) var<storage, read> b: array<vec4<f32>>;  // [slots, cacheLength, bStride4]
@group(0) @binding(4) var<storage, read_write> s: array<vec4<f32>>;  // [rows, heads, sStride4]

fn step(acc: vec4<f32>, x: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
  var sum = fma(vec4<f32>(x.x), vec4<f32>(w0.x, w1.x, w2.x, w3.x), acc);
  sum = fma(vec4<f32>(x.y), vec4<f32>(w0.y, w1.y, w2.y, w3.y), sum);
  sum = fma(vec4<f32>(x.z), vec4<f32>(w0.z, w1.z, w2.z, w3.z), sum);
  return fma(vec4<f32>(x.w), vec4<f32>(w0.w, w1.w, w2.w, w3.w), sum);
}

@compute @workgroup_size(16, 4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let quad = id.x;
  let row = id.y / p.heads;
  let h = id.y % p.heads;
  if (row >= p.rows) {
    return;
  }
  let place = meta_[p.rowOffset + row];
  if (quad * 4u > place.y) {
    return;
  }
  let last = place.y;
  let kv = h / (p.heads / p.kvHeads) * p.d4;
  let cache = place.x * p.cacheLength;
  let j = quad * 4u;
  let b0 = (cache + j) * p.bStride4 + kv;
  let b1 = (cache + min(j + 1u, last)) * p.bStride4 + kv;
  let b2 = (cache + min(j + 2u, last)) * p.bStride4 + kv;
  let b3 = (cache + min(j + 3u, last)) * p.bStride4 + kv;
  let source = (p.rowOffset + row) * p.aStride4 + h * p.d4;
  var acc = vec4<f32>(0.0);
  for (var d = 0u; d < p.d4; d++) {
    acc = step(acc, a[source + d], b[b0 + d], b[b1 + d], b[b2 + d], b[b3 + d]);
  }
  let inside = vec4<bool>(true, j + 1u <= last, j + 2u <= last, j + 3u <= last);
  s[(row * p.heads + h) * p.sStride4 + quad] = select(vec4<f32>(0.0), p.scale * acc, inside);
}
