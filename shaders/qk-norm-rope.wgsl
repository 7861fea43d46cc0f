// Splits a row of q, k, v; normalises each head of q and k (NORM), rotates it by its position, and stores k and v in
// the cache. For a head x of q or k with gain g, half = headDim / 2, angle table (cos, sin)[position, i]:
//   n[d] = g[d] * x[d] / sqrt(mean_d(x[d]^2) + eps)      (NORM; else n = x)
//   y[i] = n[i] * cos_i - n[i + half] * sin_i,  y[i + half] = n[i + half] * cos_i + n[i] * sin_i
// One thread a (row, head); squares are added in ascending d: the bits depend on the row alone.
struct Params {
  rows: u32,
  heads: u32,
  kvHeads: u32,
  headDim: u32,
  rawStride: u32,
  qStride: u32,
  cacheLength: u32,
  kvStride: u32,
  eps: f32,
}

override NORM: bool = true;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> raw: array<f32>;  // [rows, rawStride]: heads, then kvHeads of k, then of v
@group(0) @binding(2) var<storage, read> gain: array<f32>;  // [2, headDim]: q, k
@group(0) @binding(3) var<storage, read> rope: array<vec2<f32>>;  // [positions, headDim / 2]: cos, sin
@group(0) @binding(4) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(5) var<storage, read_write> q: array<f32>;  // [rows, qStride]
@group(0) @binding(6) var<storage, read_write> k: array<f32>;  // [slots, cacheLength, kvStride]
@group(0) @binding(7) var<storage, read_write> v: array<f32>;  // [slots, cacheLength, kvStride]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let all = p.heads + 2u * p.kvHeads;
  let index = id.y * groups.x * 64u + id.x;
  let r = index / all;
  let h = index % all;
  if (r >= p.rows) {
    return;
  }
  let place = meta_[r];
  let base = r * p.rawStride + h * p.headDim;
  let cache = (place.x * p.cacheLength + place.y) * p.kvStride;
  if (h >= p.heads + p.kvHeads) {
    let to = cache + (h - p.heads - p.kvHeads) * p.headDim;
    for (var d = 0u; d < p.headDim; d++) {
      v[to + d] = raw[base + d];
    }
    return;
  }
  let isK = h >= p.heads;
  var inverse = 1.0;
  if (NORM) {
    var sum = 0.0;
    for (var d = 0u; d < p.headDim; d++) {
      let value = raw[base + d];
      sum = fma(value, value, sum);
    }
    inverse = inverseSqrt(sum / f32(p.headDim) + p.eps);
  }
  let half = p.headDim / 2u;
  let g = select(0u, p.headDim, isK);
  for (var i = 0u; i < half; i++) {
    var a = raw[base + i];
    var b = raw[base + i + half];
    if (NORM) {
      a = gain[g + i] * (a * inverse);
      b = gain[g + i + half] * (b * inverse);
    }
    let turn = rope[place.y * half + i];
    let first = fma(a, turn.x, -(b * turn.y));
    let second = fma(b, turn.x, a * turn.y);
    if (isK) {
      let to = cache + (h - p.heads) * p.headDim;
      k[to + i] = first;
      k[to + i + half] = second;
    } else {
      let to = r * p.qStride + h * p.headDim;
      q[to + i] = first;
      q[to + i + half] = second;
    }
  }
}
