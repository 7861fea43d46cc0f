// The gradient of qk-norm-rope with respect to the raw row. With dn the rotation by the negative angle of the incoming
// gradient, i = 1 / sqrt(mean(x^2) + eps), s = sum_d g[d] * dn[d] * x[d]:
//   dx[d] = i * g[d] * dn[d] - x[d] * i^3 * s / headDim      (NORM; else dx = dn);  v: a copy.
// One thread a (row, head); d ascending: bit-repeatable.
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
@group(0) @binding(1) var<storage, read> raw: array<f32>;  // [rows, rawStride]
@group(0) @binding(2) var<storage, read> gain: array<f32>;  // [2, headDim]
@group(0) @binding(3) var<storage, read> rope: array<vec2<f32>>;  // [positions, headDim / 2]: cos, sin
@group(0) @binding(4) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(5) var<storage, read> dq: array<f32>;  // [rows, qStride]
@group(0) @binding(6) var<storage, read> dk: array<f32>;  // [slots, cacheLength, kvStride]
@group(0) @binding(7) var<storage, read> dv: array<f32>;  // [slots, cacheLength, kvStride]
@group(0) @binding(8) var<storage, read_write> dRaw: array<f32>;  // [rows, rawStride]

fn incoming(isK: bool, at: u32) -> f32 {
  if (isK) {
    return dk[at];
  }
  return dq[at];
}

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
    let at = cache + (h - p.heads - p.kvHeads) * p.headDim;
    for (var d = 0u; d < p.headDim; d++) {
      dRaw[base + d] = dv[at + d];
    }
    return;
  }
  let isK = h >= p.heads;
  let half = p.headDim / 2u;
  let g = select(0u, p.headDim, isK);
  let at = select(r * p.qStride + h * p.headDim, cache + (h - p.heads) * p.headDim, isK);
  var square = 0.0;
  var product = 0.0;
  for (var i = 0u; i < half; i++) {
    let turn = rope[place.y * half + i];
    let first = incoming(isK, at + i);
    let second = incoming(isK, at + i + half);
    let a = fma(first, turn.x, second * turn.y);
    let b = fma(second, turn.x, -(first * turn.y));
    if (NORM) {
      let xa = raw[base + i];
      let xb = raw[base + i + half];
      square = fma(xa, xa, square);
      square = fma(xb, xb, square);
      product = fma(gain[g + i] * a, xa, product);
      product = fma(gain[g + i + half] * b, xb, product);
    }
    dRaw[base + i] = a;
    dRaw[base + i + half] = b;
  }
  if (NORM) {
    let inverse = inverseSqrt(square / f32(p.headDim) + p.eps);
    let pull = -(inverse * inverse * inverse * product / f32(p.headDim));
    for (var d = 0u; d < p.headDim; d++) {
      dRaw[base + d] = fma(pull, raw[base + d], inverse * (gain[g + d] * dRaw[base + d]));
    }
  }
}
