// The gradient of cache-rows with respect to the raw row; rounding to 16 bit counts as the identity. With dn the rotation
// of the incoming gradient by the negative angle, i = 1 / sqrt(mean(x^2) + eps), s = sum_d g[d] * dn[d] * x[d]:
//   dx[d] = i * g[d] * dn[d] - x[d] * i^3 * s / headDim      (NORM; else dx = dn);  v: a copy.
// LANES = headDim / 8 threads a head, each with four pairs (i, i + headDim / 2); a thread's sums, then the threads' in
// ascending order: bit-repeatable. qk-norm-rope-backward is the same with one thread a head and other sums.
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
override LANES: u32 = 16u;
override SIZE = LANES * 4u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> raw: array<vec4<f32>>;  // [rows, rawStride / 4]
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;  // [2, headDim / 4]
@group(0) @binding(3) var<storage, read> rope: array<vec4<f32>>;  // [positions, headDim / 4]: cos, sin of two angles
@group(0) @binding(4) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(5) var<storage, read> dq: array<vec4<f32>>;  // [rows, qStride / 4]
@group(0) @binding(6) var<storage, read> dk: array<vec4<f32>>;  // [slots, cacheLength, kvStride / 4]
@group(0) @binding(7) var<storage, read> dv: array<vec4<f32>>;  // [slots, cacheLength, kvStride / 4]
@group(0) @binding(8) var<storage, read_write> dRaw: array<vec4<f32>>;  // [rows, rawStride / 4]

var<workgroup> sums: array<vec2<f32>, SIZE>;  // of squares, of products

fn square4(sum: f32, x: vec4<f32>, y: vec4<f32>) -> f32 {
  return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
}

@compute @workgroup_size(LANES, 4)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let lane = local.x;
  let own = local.y * LANES;
  let all = p.heads + 2u * p.kvHeads;
  let index = (wg.y * groups.x + wg.x) * 4u + local.y;
  let inside = index < p.rows * all;
  let r = min(index / all, p.rows - 1u);
  let h = index % all;
  let place = meta_[r];
  let base = r * (p.rawStride / 4u) + h * LANES * 2u + lane;
  let cache = (place.x * p.cacheLength + place.y) * (p.kvStride / 4u);
  let isQ = h < p.heads;
  let isV = h >= p.heads + p.kvHeads;
  var a: vec4<f32>;
  var b: vec4<f32>;
  if (isQ) {
    let at = r * (p.qStride / 4u) + h * LANES * 2u + lane;
    a = dq[at];
    b = dq[at + LANES];
  } else if (isV) {
    let at = cache + (h - p.heads - p.kvHeads) * LANES * 2u + lane;
    a = dv[at];
    b = dv[at + LANES];
  } else {
    let at = cache + (h - p.heads) * LANES * 2u + lane;
    a = dk[at];
    b = dk[at + LANES];
  }
  if (!isV) {
    let turn = place.y * LANES * 2u + lane * 2u;
    let t0 = rope[turn];
    let t1 = rope[turn + 1u];
    let cosine = vec4<f32>(t0.x, t0.z, t1.x, t1.z);
    let sine = vec4<f32>(t0.y, t0.w, t1.y, t1.w);
    let first = fma(a, cosine, b * sine);
    b = fma(b, cosine, -(a * sine));
    a = first;
  }
  if (NORM) {
    let x = raw[base];
    let y = raw[base + LANES];
    let g = select(LANES * 2u, 0u, isQ) + lane;
    let ga = gain[g] * a;
    let gb = gain[g + LANES] * b;
    sums[own + lane] = vec2<f32>(square4(square4(0.0, x, x), y, y), square4(square4(0.0, ga, x), gb, y));
    workgroupBarrier();
    var total = vec2<f32>(0.0);
    for (var i = 0u; i < LANES; i++) {
      total = total + sums[own + i];
    }
    if (!isV) {
      let size = f32(LANES * 8u);
      let inverse = inverseSqrt(total.x / size + p.eps);
      let pull = -(inverse * inverse * inverse * total.y / size);
      a = fma(vec4<f32>(pull), x, inverse * ga);
      b = fma(vec4<f32>(pull), y, inverse * gb);
    }
  }
  if (inside) {
    dRaw[base] = a;
    dRaw[base + LANES] = b;
  }
}
