// One chunk of 64 keys for the query heads of one key-value head, for one row (decode), from the row's q, k and v as the
// projection leaves them. Its heads are normalised (NORM), rotated and, for k and v, rounded as in cache-rows.wgsl, bit
// for bit; the workgroup of the row's last chunk writes k and v to the cache. For key j of the chunk, up to the row's
// position, with dot = sum_d q[d] * k16[j, d], d ascending, one fma a step, and c = kScale[j] * scale:
//   m = max_j (dot * c),  p_j = exp(fma(dot, c, -m)),  l = sum_j p_j,  o[d] = sum_j (p_j * vScale[j]) * v16[j, d]
// with j ascending from 0, plain adds for l, one fma a step for o. Keys past the position weigh nothing and are not
// read. attention-flash.wgsl computes the same, bit for bit. A workgroup past its row's position returns at once. Rows of
// one dispatch have different slots. Workgroup memory holds half a chunk of k, then of v: a processor has 48 KB of it for
// all its workgroups (NVIDIA under Vulkan), and four fit so.
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
override HALF = 32u * D8;
override TILE = 32u * PITCH;
override SCORES = GROUP * 16u;

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
var<workgroup> tile: array<vec4<u32>, TILE>;  // of k, then of v: one half of the chunk at a time
var<workgroup> scores: array<vec4<f32>, SCORES>;  // [GROUP, 64]
var<workgroup> weights: array<vec4<f32>, PAIRS>;  // [GROUP, 64]: exp, exp * vScale; before, the dot for exp
var<workgroup> found: array<u32, HEAD_LANES>;  // of a head's lanes: sums of squares, then largest magnitudes
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
  var top = 0u;
  for (var i = 0u; i < D8; i++) {
    top = max(top, found[e * D8 + i]);
  }
  let exponent = top >> 23u;
  let biased = select(clamp(268u - min(exponent, 254u), 14u, 253u), 127u, top == 0u);
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

fn step(sum: f32, x: vec2<f32>, word: u32) -> f32 {
  let two = unpack2x16float(word);
  return fma(x.y, two.y, fma(x.x, two.x, sum));
}

// A key of the chunk to the tile, if it is of the half that stands there. The row's own, at `end`, is put by others.
fn putKey(at: u32, portion: u32, end: u32, words: vec4<u32>) {
  if (at < end && at / HALF == portion) {
    tile[at % HALF / D8 * PITCH + at % D8] = words;
  }
}

fn putValue(at: u32, portion: u32, end: u32, after: u32, words: vec4<u32>) {
  if ((at < end || at >= after) && at / HALF == portion) {
    tile[at % HALF / D8 * PITCH + at % D8] = select(vec4<u32>(0u), words, vec4<bool>(at < end));
  }
}

// The row's own k (0) or v (1) to the tile, if this is its chunk and half.
fn putOwn(which: u32, portion: u32, isLast: bool, cached: u32, lane: u32) {
  if (isLast && lane < D8 && cached / 32u == portion) {
    tile[cached % 32u * PITCH + lane] = own8(which, lane);
  }
}

// The scores of a half's keys: a lane a head and key.
fn scoreHalf(portion: u32, keys: u32, factor: f32, lane: u32) {
  let key = portion * 32u + lane % 32u;
  for (var pair = lane; pair < PAIRS; pair += 128u) {
    let head = pair / 32u * D8 * 2u;
    let own = lane % 32u * PITCH;
    var dot = 0.0;
    for (var i = 0u; i < D8; i++) {
      let words = tile[own + i];
      let x = queries[head + i * 2u];
      let y = queries[head + i * 2u + 1u];
      dot = step(dot, x.xy, words.x);
      dot = step(dot, x.zw, words.y);
      dot = step(dot, y.xy, words.z);
      dot = step(dot, y.zw, words.w);
    }
    // The product is compared, the sum is kept: it is multiplied again, by an fma, in the exponent.
    scores[pair / 32u * 16u + key / 4u][key % 4u] = select(-1e30, dot * factor, key < keys);
    weights[pair / 32u * 32u + key / 2u][key % 2u * 2u] = dot;
  }
}

// A key's weight, and times the scale of its value, for one head.
fn weigh(head: u32, key: u32, keys: u32, factor: f32, top: f32, valueScale: f32) {
  let to = head * 32u + key / 2u;
  let which = key % 2u * 2u;
  let e = select(0.0, exp(fma(weights[to][which], factor, -top)), key < keys);
  weights[to][which] = e;
  weights[to][which + 1u] = e * valueScale;
}

// Two elements of a head's weighted values, and the sum of its weights.
struct Sums {
  o: vec2<f32>,
  l: f32,
}

fn add(sums: Sums, w: vec4<f32>, a: vec2<f32>, b: vec2<f32>) -> Sums {
  let o = fma(vec2<f32>(w.w), b, fma(vec2<f32>(w.y), a, sums.o));
  return Sums(o, (sums.l + w.x) + w.z);
}

fn put(row: u32, kv: u32, head: u32, chunk: u32, word: u32, sums: Sums) {
  if (head < GROUP) {
    let to = ((row * p.heads + kv * GROUP + head) * p.chunks + chunk) * (2u + WORDS);
    partials[to + 2u + word] = sums.o;
    if (word == 0u) {
      partials[to].y = sums.l;
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
  let k0 = k[min(start + lane, last)];
  if (2u < D8) { k1 = k[min(start + 128u + lane, last)]; }
  if (4u < D8) { k2 = k[min(start + 256u + lane, last)]; }
  if (6u < D8) { k3 = k[min(start + 384u + lane, last)]; }
  if (8u < D8) { k4 = k[min(start + 512u + lane, last)]; }
  if (10u < D8) { k5 = k[min(start + 640u + lane, last)]; }
  if (12u < D8) { k6 = k[min(start + 768u + lane, last)]; }
  if (14u < D8) { k7 = k[min(start + 896u + lane, last)]; }
  let v0 = v[min(start + lane, last)];
  if (2u < D8) { v1 = v[min(start + 128u + lane, last)]; }
  if (4u < D8) { v2 = v[min(start + 256u + lane, last)]; }
  if (6u < D8) { v3 = v[min(start + 384u + lane, last)]; }
  if (8u < D8) { v4 = v[min(start + 512u + lane, last)]; }
  if (10u < D8) { v5 = v[min(start + 640u + lane, last)]; }
  if (12u < D8) { v6 = v[min(start + 768u + lane, last)]; }
  if (14u < D8) { v7 = v[min(start + 896u + lane, last)]; }
  let j = lane % 32u;
  let newest = max(cached, 1u) - 1u;
  var scale0 = scales[cache + min(j, newest)];
  var scale1 = scales[cache + min(j + 32u, newest)];
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
        found[e * D8 + t] = bitcast<u32>(square);
      }
      workgroupBarrier();
    }
    if (mine && e <= GROUP) {
      if (NORM) {
        var sum = 0.0;
        for (var i = 0u; i < D8; i++) {
          sum = sum + bitcast<f32>(found[e * D8 + i]);
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
    if (NORM) {
      workgroupBarrier();
    }
    if (mine) {
      found[e * D8 + t] = max(topOf(a), topOf(b));
    }
    workgroupBarrier();
    if (mine) {
      ready(e, t, a, b);
    }
  }
  workgroupBarrier();
  putKey(lane, 0u, end, k0);
  if (4u < D8) { putKey(128u + lane, 0u, end, k1); }
  if (8u < D8) { putKey(256u + lane, 0u, end, k2); }
  if (12u < D8) { putKey(384u + lane, 0u, end, k3); }
  if (16u < D8) { putKey(512u + lane, 0u, end, k4); }
  if (20u < D8) { putKey(640u + lane, 0u, end, k5); }
  if (24u < D8) { putKey(768u + lane, 0u, end, k6); }
  if (28u < D8) { putKey(896u + lane, 0u, end, k7); }
  putOwn(0u, 0u, isLast, cached, lane);
  if (isLast) {
    if (lane < D8) {
      k[start + end + lane] = own8(0u, lane);
    } else if (lane < 2u * D8) {
      v[start + end + lane - D8] = own8(1u, lane - D8);
    }
    let both = vec2<f32>(freshScales[0], freshScales[1]);
    if (lane == 0u) {
      scales[cache + cached] = both;
    }
    // Past the row's own key there may stand anything: those weigh 0, and 0 * NaN would not be 0.
    scale0 = select(select(vec2<f32>(0.0), both, vec2<bool>(j == cached)), scale0, vec2<bool>(j < cached));
    scale1 = select(select(vec2<f32>(0.0), both, vec2<bool>(j + 32u == cached)), scale1, vec2<bool>(j + 32u < cached));
  }
  workgroupBarrier();
  let factor = vec2<f32>(scale0.x * p.scale, scale1.x * p.scale);
  scoreHalf(0u, keys, factor.x, lane);
  workgroupBarrier();
  if (4u > D8) { putKey(lane, 1u, end, k0); }
  if (2u < D8 && 8u > D8) { putKey(128u + lane, 1u, end, k1); }
  if (4u < D8 && 12u > D8) { putKey(256u + lane, 1u, end, k2); }
  if (6u < D8 && 16u > D8) { putKey(384u + lane, 1u, end, k3); }
  if (8u < D8 && 20u > D8) { putKey(512u + lane, 1u, end, k4); }
  if (10u < D8 && 24u > D8) { putKey(640u + lane, 1u, end, k5); }
  if (12u < D8 && 28u > D8) { putKey(768u + lane, 1u, end, k6); }
  if (14u < D8 && 32u > D8) { putKey(896u + lane, 1u, end, k7); }
  putOwn(0u, 1u, isLast, cached, lane);
  workgroupBarrier();
  scoreHalf(1u, keys, factor.y, lane);
  workgroupBarrier();
  putValue(lane, 0u, end, after, v0);
  if (4u < D8) { putValue(128u + lane, 0u, end, after, v1); }
  if (8u < D8) { putValue(256u + lane, 0u, end, after, v2); }
  if (12u < D8) { putValue(384u + lane, 0u, end, after, v3); }
  if (16u < D8) { putValue(512u + lane, 0u, end, after, v4); }
  if (20u < D8) { putValue(640u + lane, 0u, end, after, v5); }
  if (24u < D8) { putValue(768u + lane, 0u, end, after, v6); }
  if (28u < D8) { putValue(896u + lane, 0u, end, after, v7); }
  putOwn(1u, 0u, isLast, cached, lane);
  for (var pair = lane; pair < PAIRS; pair += 128u) {
    let head = pair / 32u;
    var most = scores[head * 16u];
    for (var i = 1u; i < 16u; i++) {
      most = max(most, scores[head * 16u + i]);
    }
    let top = max(max(most.x, most.y), max(most.z, most.w));
    weigh(head, j, keys, factor.x, top, scale0.y);
    weigh(head, j + 32u, keys, factor.y, top, scale1.y);
    if (j == 0u) {
      let h = kv * GROUP + head;
      partials[((row * p.heads + h) * p.chunks + first / 64u) * (2u + WORDS)].x = top;
    }
  }
  workgroupBarrier();
  // Two elements of some heads a thread, so that heads share what is loaded and widened of v.
  let word = lane % WORDS;
  let head = lane / WORDS;
  var s0: Sums;
  var s1: Sums;
  var s2: Sums;
  var s3: Sums;
  for (var portion = 0u; portion < 2u; portion++) {
    if (portion == 1u) {
      workgroupBarrier();
      if (4u > D8) { putValue(lane, 1u, end, after, v0); }
      if (2u < D8 && 8u > D8) { putValue(128u + lane, 1u, end, after, v1); }
      if (4u < D8 && 12u > D8) { putValue(256u + lane, 1u, end, after, v2); }
      if (6u < D8 && 16u > D8) { putValue(384u + lane, 1u, end, after, v3); }
      if (8u < D8 && 20u > D8) { putValue(512u + lane, 1u, end, after, v4); }
      if (10u < D8 && 24u > D8) { putValue(640u + lane, 1u, end, after, v5); }
      if (12u < D8 && 28u > D8) { putValue(768u + lane, 1u, end, after, v6); }
      if (14u < D8 && 32u > D8) { putValue(896u + lane, 1u, end, after, v7); }
      putOwn(1u, 1u, isLast, cached, lane);
      workgroupBarrier();
    }
    for (var n = 0u; n < 16u; n++) {
      let a = unpack2x16float(tile[n * 2u * PITCH + word / 4u][word % 4u]);
      let b = unpack2x16float(tile[(n * 2u + 1u) * PITCH + word / 4u][word % 4u]);
      let at = portion * 16u + n;
      s0 = add(s0, weights[min(head, GROUP - 1u) * 32u + at], a, b);
      if (1u * HEADS_APART < GROUP) {
        s1 = add(s1, weights[min(head + 1u * HEADS_APART, GROUP - 1u) * 32u + at], a, b);
      }
      if (2u * HEADS_APART < GROUP) {
        s2 = add(s2, weights[min(head + 2u * HEADS_APART, GROUP - 1u) * 32u + at], a, b);
      }
      if (3u * HEADS_APART < GROUP) {
        s3 = add(s3, weights[min(head + 3u * HEADS_APART, GROUP - 1u) * 32u + at], a, b);
      }
    }
  }
  if (head >= HEADS_APART) {
    return;
  }
  put(row, kv, head, first / 64u, word, s0);
  if (1u * HEADS_APART < GROUP) { put(row, kv, head + 1u * HEADS_APART, first / 64u, word, s1); }
  if (2u * HEADS_APART < GROUP) { put(row, kv, head + 2u * HEADS_APART, first / 64u, word, s2); }
  if (3u * HEADS_APART < GROUP) { put(row, kv, head + 3u * HEADS_APART, first / 64u, word, s3); }
}
