// One chunk of 64 keys for the query heads of one key-value head, for one row (decode), from the row's q, k and v as the
// projection leaves them. Its heads are normalised (NORM), rotated and, for k and v, rounded as in cache-rows.wgsl, bit
// for bit; the workgroup of the row's last chunk writes k and v to the cache. For key j of the chunk, up to the row's
// position, with dot = sum_d q[d] * k16[j, d], d ascending, one fma a step, and c = kScale[j] * scale:
//   m = max_j (dot * c),  p_j = exp(fma(dot, c, -m)),  l = sum_j p_j,  o[d] = sum_j (p_j * vScale[j]) * v16[j, d]
// with j ascending from 0, plain adds for l, one fma a step for o. Keys past the position weigh nothing and are not
// read. attention-flash.wgsl computes the same, bit for bit. A workgroup past its row's position returns at once. Rows of
// one dispatch have different slots.
struct Params {
  heads: u32,
  kvHeads: u32,
  rawStride4: u32,
  cacheLength: u32,
  chunks: u32,
  scale: f32,
  eps: f32,
}

override NORM: bool = true;
override GROUP: u32 = 2u;
override D8: u32 = 16u;  // also the lanes of a head: each has four pairs (i, i + headDim / 2)
override AT_ONCE = 128u / D8;  // heads that are made ready at the same time
override HEADS = GROUP + 2u;
override HEAD_LANES = HEADS * D8;
override FRESH = D8 * 4u;
override PAIRS = GROUP * 32u;
override Q_SIZE = GROUP * D8 * 2u;
override PITCH = D8 + 1u;
override WORDS = D8 * 4u;
override HEADS_APART = max(1u, 128u / WORDS);
override TILE = 64u * PITCH;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(2) var<storage, read> raw: array<vec4<f32>>;  // [rows, rawStride4]: heads, then kvHeads of k, then of v
@group(0) @binding(3) var<storage, read> gain: array<vec4<f32>>;  // [2, headDim / 4]: q, k
@group(0) @binding(4) var<storage, read> rope: array<vec4<f32>>;  // [positions, headDim / 4]: cos, sin of two angles
@group(0) @binding(5) var<storage, read_write> k: array<vec4<u32>>;  // [slots, kvHeads, cacheLength, D8] x 8 f16
@group(0) @binding(6) var<storage, read_write> v: array<vec4<u32>>;  // as k
@group(0) @binding(7) var<storage, read_write> scales: array<vec2<f32>>;  // [slots, kvHeads, cacheLength]: of k, of v
@group(0) @binding(8) var<storage, read_write> partials: array<vec2<f32>>;  // [rows, heads, chunks, 2 + WORDS]

var<workgroup> queries: array<vec4<f32>, Q_SIZE>;
var<workgroup> tile: array<vec4<u32>, TILE>;
var<workgroup> scores: array<vec2<f32>, PAIRS>;  // [GROUP, 32]: of keys j and j + 1
var<workgroup> weights: array<vec4<f32>, PAIRS>;  // of keys j and j + 1: exp, then exp * vScale
var<workgroup> squares: array<f32, HEAD_LANES>;
var<workgroup> tops: array<u32, HEAD_LANES>;
var<workgroup> fresh: array<vec2<u32>, FRESH>;  // the row's own k, then v, in quads
var<workgroup> freshScales: array<f32, 2>;

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

// Where head e of the workgroup's starts in a row: its query heads, then its k, its v.
fn headBase(e: u32, kv: u32) -> u32 {
  let ofCache = p.heads + select(0u, p.kvHeads, e > GROUP) + kv;
  return select(ofCache, kv * GROUP + e, e < GROUP) * D8 * 2u;
}

// A head of q to `queries`, of k or v to `fresh`; the steps and their order are cache-rows'.
fn ready(e: u32, t: u32, a: vec4<f32>, b: vec4<f32>) {
  if (e < GROUP) {
    queries[e * D8 * 2u + t] = a;
    queries[e * D8 * 2u + D8 + t] = b;
    return;
  }
  var found = 0u;
  for (var i = 0u; i < D8; i++) {
    found = max(found, tops[e * D8 + i]);
  }
  let exponent = found >> 23u;
  let biased = select(clamp(268u - min(exponent, 254u), 14u, 253u), 127u, found == 0u);
  let factor = bitcast<f32>(biased << 23u);
  let to = (e - GROUP) * D8 * 2u + t;
  fresh[to] = halves(a * factor, exponent == 255u);
  fresh[to + D8] = halves(b * factor, exponent == 255u);
  if (t == 0u) {
    freshScales[e - GROUP] = bitcast<f32>((254u - biased) << 23u);
  }
}

// Eight halves of the row's own k (0) or v (1).
fn own8(which: u32, i: u32) -> vec4<u32> {
  return vec4<u32>(fresh[which * D8 * 2u + i * 2u], fresh[which * D8 * 2u + i * 2u + 1u]);
}

fn step(sum: vec2<f32>, x: vec2<f32>, a: u32, b: u32) -> vec2<f32> {
  let one = unpack2x16float(a);
  let two = unpack2x16float(b);
  let s = fma(vec2<f32>(x.x), vec2<f32>(one.x, two.x), sum);
  return fma(vec2<f32>(x.y), vec2<f32>(one.y, two.y), s);
}

// Keys 2 i and 2 i + 1 stand at i and 32 + i, so that neighbouring lanes read neighbouring rows.
fn keyPlace(key: u32) -> u32 {
  return (key % 2u * 32u + key / 2u) * PITCH;
}

// The row's own key and value, at `end`, are put by others.
fn putKey(at: u32, end: u32, words: vec4<u32>) {
  if (at < end) {
    tile[keyPlace(at / D8) + at % D8] = words;
  }
}

fn putValue(at: u32, end: u32, after: u32, words: vec4<u32>) {
  if (at < end || at >= after) {
    tile[at / D8 * PITCH + at % D8] = select(vec4<u32>(0u), words, vec4<bool>(at < end));
  }
}

fn put(row: u32, kv: u32, head: u32, chunk: u32, word: u32, o: vec2<f32>, l: f32) {
  if (head < GROUP) {
    let to = ((row * p.heads + kv * GROUP + head) * p.chunks + chunk) * (2u + WORDS);
    partials[to + 2u + word] = o;
    if (word == 0u) {
      partials[to].y = l;
    }
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  let kv = wg.x % p.kvHeads;
  let first = wg.x / p.kvHeads * 64u;
  let place = meta_[row];
  if (first > place.y) {
    return;
  }
  let keys = min(place.y - first + 1u, 64u);
  let isLast = place.y - first < 64u;
  let cached = keys - select(0u, 1u, isLast);
  let cache = (place.x * p.kvHeads + kv) * p.cacheLength + first;
  // All loads of the chunk are in flight before anything waits.
  let start = cache * D8;
  let end = cached * D8;
  let after = keys * D8;
  let last = start + max(end, 1u) - 1u;
  var k0 = vec4<u32>(0u);
  var v0 = vec4<u32>(0u);
  var k1 = vec4<u32>(0u);
  var v1 = vec4<u32>(0u);
  var k2 = vec4<u32>(0u);
  var v2 = vec4<u32>(0u);
  var k3 = vec4<u32>(0u);
  var v3 = vec4<u32>(0u);
  var k4 = vec4<u32>(0u);
  var v4 = vec4<u32>(0u);
  var k5 = vec4<u32>(0u);
  var v5 = vec4<u32>(0u);
  var k6 = vec4<u32>(0u);
  var v6 = vec4<u32>(0u);
  var k7 = vec4<u32>(0u);
  var v7 = vec4<u32>(0u);
  k0 = k[min(start + lane, last)];
  if (2u < D8) { k1 = k[min(start + 128u + lane, last)]; }
  if (4u < D8) { k2 = k[min(start + 256u + lane, last)]; }
  if (6u < D8) { k3 = k[min(start + 384u + lane, last)]; }
  if (8u < D8) { k4 = k[min(start + 512u + lane, last)]; }
  if (10u < D8) { k5 = k[min(start + 640u + lane, last)]; }
  if (12u < D8) { k6 = k[min(start + 768u + lane, last)]; }
  if (14u < D8) { k7 = k[min(start + 896u + lane, last)]; }
  v0 = v[min(start + lane, last)];
  if (2u < D8) { v1 = v[min(start + 128u + lane, last)]; }
  if (4u < D8) { v2 = v[min(start + 256u + lane, last)]; }
  if (6u < D8) { v3 = v[min(start + 384u + lane, last)]; }
  if (8u < D8) { v4 = v[min(start + 512u + lane, last)]; }
  if (10u < D8) { v5 = v[min(start + 640u + lane, last)]; }
  if (12u < D8) { v6 = v[min(start + 768u + lane, last)]; }
  if (14u < D8) { v7 = v[min(start + 896u + lane, last)]; }
  let j = lane % 32u * 2u;
  let newest = max(cached, 1u) - 1u;
  var scale0 = scales[cache + min(j, newest)];
  var scale1 = scales[cache + min(j + 1u, newest)];
  let t = lane % D8;
  let turn = place.y * D8 * 2u + t * 2u;
  let t0 = rope[turn];
  let t1 = rope[turn + 1u];
  let cosine = vec4<f32>(t0.x, t0.z, t1.x, t1.z);
  let sine = vec4<f32>(t0.y, t0.w, t1.y, t1.w);
  for (var from_ = 0u; from_ < HEADS; from_ += AT_ONCE) {
    let e = from_ + lane / D8;
    let mine = lane / D8 < AT_ONCE && e < select(GROUP, HEADS, isLast);
    var a = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
    if (mine) {
      let base = row * p.rawStride4 + headBase(e, kv) + t;
      a = raw[base];
      b = raw[base + D8];
    }
    if (NORM) {
      if (mine) {
        var square = a.x * a.x;
        square = fma(a.y, a.y, square);
        square = fma(a.z, a.z, square);
        square = fma(a.w, a.w, square);
        square = fma(b.x, b.x, square);
        square = fma(b.y, b.y, square);
        square = fma(b.z, b.z, square);
        square = fma(b.w, b.w, square);
        squares[e * D8 + t] = square;
      }
      workgroupBarrier();
    }
    if (mine && e <= GROUP) {
      if (NORM) {
        var sum = 0.0;
        for (var i = 0u; i < D8; i++) {
          sum = sum + squares[e * D8 + i];
        }
        let inverse = inverseSqrt(fma(sum, 1.0 / f32(D8 * 8u), p.eps));
        let g = select(D8 * 2u, 0u, e < GROUP) + t;
        a = gain[g] * (a * inverse);
        b = gain[g + D8] * (b * inverse);
      }
      let turned = fma(a, cosine, -(b * sine));
      b = fma(b, cosine, a * sine);
      a = turned;
    }
    if (mine) {
      tops[e * D8 + t] = max(topOf(a), topOf(b));
    }
    workgroupBarrier();
    if (mine) {
      ready(e, t, a, b);
    }
  }
  putKey(lane, end, k0);
  if (2u < D8) { putKey(128u + lane, end, k1); }
  if (4u < D8) { putKey(256u + lane, end, k2); }
  if (6u < D8) { putKey(384u + lane, end, k3); }
  if (8u < D8) { putKey(512u + lane, end, k4); }
  if (10u < D8) { putKey(640u + lane, end, k5); }
  if (12u < D8) { putKey(768u + lane, end, k6); }
  if (14u < D8) { putKey(896u + lane, end, k7); }
  workgroupBarrier();
  if (isLast) {
    if (lane < D8) {
      let words = own8(0u, lane);
      tile[keyPlace(cached) + lane] = words;
      k[start + end + lane] = words;
    } else if (lane < 2u * D8) {
      v[start + end + lane - D8] = own8(1u, lane - D8);
    }
    let both = vec2<f32>(freshScales[0], freshScales[1]);
    if (lane == 0u) {
      scales[cache + cached] = both;
    }
    // Past the row's own key there may stand anything: those weigh 0, and 0 * NaN would not be 0.
    scale0 = select(select(vec2<f32>(0.0), both, vec2<bool>(j == cached)), scale0, vec2<bool>(j < cached));
    scale1 = select(select(vec2<f32>(0.0), both, vec2<bool>(j + 1u == cached)), scale1, vec2<bool>(j + 1u < cached));
    workgroupBarrier();
  }
  let factor = vec2<f32>(scale0.x * p.scale, scale1.x * p.scale);
  let inside = vec2<bool>(j < keys, j + 1u < keys);
  for (var pair = lane; pair < PAIRS; pair += 128u) {
    let head = pair / 32u * D8 * 2u;
    let own = pair % 32u * PITCH;
    var dot = vec2<f32>(0.0);
    for (var i = 0u; i < D8; i++) {
      let a = tile[own + i];
      let b = tile[own + 32u * PITCH + i];
      let x = queries[head + i * 2u];
      let y = queries[head + i * 2u + 1u];
      dot = step(dot, x.xy, a.x, b.x);
      dot = step(dot, x.zw, a.y, b.y);
      dot = step(dot, y.xy, a.z, b.z);
      dot = step(dot, y.zw, a.w, b.w);
    }
    // The product is compared, the sum is kept: it is multiplied again, by an fma, in the exponent.
    scores[pair] = select(vec2<f32>(-1e30), dot * factor, inside);
    weights[pair] = vec4<f32>(dot, 0.0, 0.0);
  }
  workgroupBarrier();
  putValue(lane, end, after, v0);
  if (2u < D8) { putValue(128u + lane, end, after, v1); }
  if (4u < D8) { putValue(256u + lane, end, after, v2); }
  if (6u < D8) { putValue(384u + lane, end, after, v3); }
  if (8u < D8) { putValue(512u + lane, end, after, v4); }
  if (10u < D8) { putValue(640u + lane, end, after, v5); }
  if (12u < D8) { putValue(768u + lane, end, after, v6); }
  if (14u < D8) { putValue(896u + lane, end, after, v7); }
  if (isLast && lane < D8) {
    tile[cached * PITCH + lane] = own8(1u, lane);
  }
  for (var pair = lane; pair < PAIRS; pair += 128u) {
    let head = pair / 32u * 32u;
    var most = scores[head];
    for (var i = 1u; i < 32u; i++) {
      most = max(most, scores[head + i]);
    }
    let top = max(most.x, most.y);
    let e = select(vec2<f32>(0.0), exp(fma(weights[pair].xy, factor, vec2<f32>(-top))), inside);
    weights[pair] = vec4<f32>(e, e.x * scale0.y, e.y * scale1.y);
    if (j == 0u) {
      let h = kv * GROUP + pair / 32u;
      partials[((row * p.heads + h) * p.chunks + first / 64u) * (2u + WORDS)].x = top;
    }
  }
  workgroupBarrier();
  // Two elements of some heads a thread, so that heads share what is loaded and widened of v.
  let word = lane % WORDS;
  let head = lane / WORDS;
  if (head >= HEADS_APART) {
    return;
  }
  var o0 = vec2<f32>(0.0);
  var l0 = 0.0;
  var o1 = vec2<f32>(0.0);
  var l1 = 0.0;
  var o2 = vec2<f32>(0.0);
  var l2 = 0.0;
  var o3 = vec2<f32>(0.0);
  var l3 = 0.0;
  for (var n = 0u; n < 32u; n++) {
    let a = unpack2x16float(tile[n * 2u * PITCH + word / 4u][word % 4u]);
    let b = unpack2x16float(tile[(n * 2u + 1u) * PITCH + word / 4u][word % 4u]);
    let w0 = weights[min(head, GROUP - 1u) * 32u + n];
    o0 = fma(vec2<f32>(w0.z), a, o0);
    o0 = fma(vec2<f32>(w0.w), b, o0);
    l0 = l0 + w0.x;
    l0 = l0 + w0.y;
    if (1u * HEADS_APART < GROUP) {
      let w1 = weights[min(head + 1u * HEADS_APART, GROUP - 1u) * 32u + n];
      o1 = fma(vec2<f32>(w1.z), a, o1);
      o1 = fma(vec2<f32>(w1.w), b, o1);
      l1 = l1 + w1.x;
      l1 = l1 + w1.y;
    }
    if (2u * HEADS_APART < GROUP) {
      let w2 = weights[min(head + 2u * HEADS_APART, GROUP - 1u) * 32u + n];
      o2 = fma(vec2<f32>(w2.z), a, o2);
      o2 = fma(vec2<f32>(w2.w), b, o2);
      l2 = l2 + w2.x;
      l2 = l2 + w2.y;
    }
    if (3u * HEADS_APART < GROUP) {
      let w3 = weights[min(head + 3u * HEADS_APART, GROUP - 1u) * 32u + n];
      o3 = fma(vec2<f32>(w3.z), a, o3);
      o3 = fma(vec2<f32>(w3.w), b, o3);
      l3 = l3 + w3.x;
      l3 = l3 + w3.y;
    }
  }
  put(row, kv, head, first / 64u, word, o0, l0);
  if (1u * HEADS_APART < GROUP) { put(row, kv, head + 1u * HEADS_APART, first / 64u, word, o1, l1); }
  if (2u * HEADS_APART < GROUP) { put(row, kv, head + 2u * HEADS_APART, first / 64u, word, o2, l2); }
  if (3u * HEADS_APART < GROUP) { put(row, kv, head + 3u * HEADS_APART, first / 64u, word, o3, l3); }
}
