// Splits rows of q, k, v; normalises (NORM) and rotates each head of q and k as qk-norm-rope.wgsl does; q stays f32,
// k and v go to a 16-bit cache. A head of k or v is multiplied by 2^e, which brings its largest magnitude into
// [2^14, 2^15), and rounded to the nearest f16, ties to even, on integers; its scale is 2^-e. A head with a NaN or an
// Infinity becomes NaN throughout. LANES = headDim / 8 threads a head, each with four pairs (i, i + headDim / 2); the
// squares of a thread, then the threads' sums in ascending order: the bits depend on the row alone.
struct Params {
  rows: u32,
  heads: u32,
  kvHeads: u32,
  rawStride4: u32,
  qStride4: u32,
  cacheLength: u32,
  eps: f32,
}

override NORM: bool = true;
override LANES: u32 = 16u;
override SIZE = LANES * 4u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> raw: array<vec4<f32>>;  // [rows, rawStride4]: heads, then kvHeads of k, then of v
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;  // [2, headDim / 4]: q, k
@group(0) @binding(3) var<storage, read> rope: array<vec4<f32>>;  // [positions, headDim / 4]: cos, sin of two angles
@group(0) @binding(4) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(5) var<storage, read_write> q: array<vec4<f32>>;  // [rows, qStride4]
@group(0) @binding(6) var<storage, read_write> k: array<vec2<u32>>;  // [slots, kvHeads, cacheLength, headDim / 4] x 4 f16
@group(0) @binding(7) var<storage, read_write> v: array<vec2<u32>>;  // as k
@group(0) @binding(8) var<storage, read_write> scales: array<f32>;  // [slots, kvHeads, cacheLength, 2]: of k, of v

var<workgroup> squares: array<f32, SIZE>;
var<workgroup> tops: array<u32, SIZE>;

fn roundHalf(value: f32) -> u32 {
  let bits = bitcast<u32>(value);
  let magnitude = bits & 0x7fffffffu;
  let normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
  let small = bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u;
  return ((bits >> 16u) & 0x8000u) | select(small, normal, magnitude >= 0x38800000u);
}

fn halves(value: vec4<f32>, bad: bool) -> vec2<u32> {
  let words = vec2<u32>(
    roundHalf(value.x) | (roundHalf(value.y) << 16u),
    roundHalf(value.z) | (roundHalf(value.w) << 16u),
  );
  return select(words, vec2<u32>(0x7e007e00u), bad);
}

fn topOf(value: vec4<f32>) -> u32 {
  let bits = bitcast<vec4<u32>>(value) & vec4<u32>(0x7fffffffu);
  return max(max(bits.x, bits.y), max(bits.z, bits.w));
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
  let base = r * p.rawStride4 + h * LANES * 2u + lane;
  var a = raw[base];
  var b = raw[base + LANES];
  let isQ = h < p.heads;
  let isV = h >= p.heads + p.kvHeads;
  if (NORM) {
    var square = a.x * a.x;
    square = fma(a.y, a.y, square);
    square = fma(a.z, a.z, square);
    square = fma(a.w, a.w, square);
    square = fma(b.x, b.x, square);
    square = fma(b.y, b.y, square);
    square = fma(b.z, b.z, square);
    square = fma(b.w, b.w, square);
    squares[own + lane] = square;
    workgroupBarrier();
  }
  if (!isV) {
    if (NORM) {
      var sum = 0.0;
      for (var i = 0u; i < LANES; i++) {
        sum = sum + squares[own + i];
      }
      let inverse = inverseSqrt(fma(sum, 1.0 / f32(LANES * 8u), p.eps));
      let g = select(LANES * 2u, 0u, isQ) + lane;
      a = gain[g] * (a * inverse);
      b = gain[g + LANES] * (b * inverse);
    }
    let turn = place.y * LANES * 2u + lane * 2u;
    let t0 = rope[turn];
    let t1 = rope[turn + 1u];
    let cosine = vec4<f32>(t0.x, t0.z, t1.x, t1.z);
    let sine = vec4<f32>(t0.y, t0.w, t1.y, t1.w);
    let first = fma(a, cosine, -(b * sine));
    b = fma(b, cosine, a * sine);
    a = first;
  }
  tops[own + lane] = max(topOf(a), topOf(b));
  workgroupBarrier();
  if (!inside) {
    return;
  }
  if (isQ) {
    let to = r * p.qStride4 + h * LANES * 2u + lane;
    q[to] = a;
    q[to + LANES] = b;
    return;
  }
  var found = 0u;
  for (var i = 0u; i < LANES; i++) {
    found = max(found, tops[own + i]);
  }
  let exponent = found >> 23u;
  // 2^e has the biased exponent 268 - exponent; e is at most 126, and 0 for a head of zeros.
  let biased = select(clamp(268u - min(exponent, 254u), 14u, 253u), 127u, found == 0u);
  let factor = bitcast<f32>(biased << 23u);
  let low = halves(a * factor, exponent == 255u);
  let high = halves(b * factor, exponent == 255u);
  let kv = (h - p.heads) % p.kvHeads;
  let at = (place.x * p.kvHeads + kv) * p.cacheLength + place.y;
  let to = at * LANES * 2u + lane;
  if (isV) {
    v[to] = low;
    v[to + LANES] = high;
  } else {
    k[to] = low;
    k[to + LANES] = high;
  }
  if (lane == 0u) {
    scales[at * 2u + select(0u, 1u, isV)] = bitcast<f32>((254u - biased) << 23u);
  }
}
