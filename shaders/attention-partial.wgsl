// One chunk of 64 keys for the query heads of one key-value head, for one row (decode). For key j of the chunk, up to
// the row's position, with dot = sum_d q[d] * k16[j, d], d ascending, one fma a step, and c = kScale[j] * scale:
//   m = max_j (dot * c),  p_j = exp(fma(dot, c, -m)),  l = sum_j p_j,  o[d] = sum_j (p_j * vScale[j]) * v16[j, d]
// with j ascending from 0, plain adds for l, one fma a step for o. Keys past the position weigh nothing and are not
// read. attention-flash.wgsl computes the same, bit for bit. A workgroup past its row's position returns at once.
struct Params {
  heads: u32,
  kvHeads: u32,
  qStride4: u32,
  cacheLength: u32,
  chunks: u32,
  scale: f32,
}

override GROUP: u32 = 2u;
override D8: u32 = 16u;
override PAIRS = GROUP * 32u;
override Q_SIZE = GROUP * D8 * 2u;
override PITCH = D8 + 1u;
override WORDS = D8 * 4u;
override HEADS_APART = max(1u, 128u / WORDS);
override TILE = 64u * PITCH;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [rows]: slot, position
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;  // [rows, qStride4]
@group(0) @binding(3) var<storage, read> k: array<vec4<u32>>;  // [slots, kvHeads, cacheLength, D8] x 8 f16
@group(0) @binding(4) var<storage, read> v: array<vec4<u32>>;  // as k
@group(0) @binding(5) var<storage, read> scales: array<vec2<f32>>;  // [slots, kvHeads, cacheLength]: of k, of v
@group(0) @binding(6) var<storage, read_write> partials: array<vec2<f32>>;  // [rows, heads, chunks, 2 + WORDS]

var<workgroup> queries: array<vec4<f32>, Q_SIZE>;
var<workgroup> tile: array<vec4<u32>, TILE>;
var<workgroup> scores: array<vec2<f32>, PAIRS>;  // [GROUP, 32]: of keys j and j + 1
var<workgroup> weights: array<vec4<f32>, PAIRS>;  // of keys j and j + 1: exp, then exp * vScale

fn step(sum: vec2<f32>, x: vec2<f32>, a: u32, b: u32) -> vec2<f32> {
  let one = unpack2x16float(a);
  let two = unpack2x16float(b);
  let s = fma(vec2<f32>(x.x), vec2<f32>(one.x, two.x), sum);
  return fma(vec2<f32>(x.y), vec2<f32>(one.y, two.y), s);
}

// Keys 2 i and 2 i + 1 stand at i and 32 + i, so that neighbouring lanes read neighbouring rows.
fn putKey(at: u32, words: vec4<u32>) {
  let key = at / D8;
  tile[(key % 2u * 32u + key / 2u) * PITCH + at % D8] = words;
}

fn putValue(at: u32, end: u32, words: vec4<u32>) {
  tile[at / D8 * PITCH + at % D8] = select(vec4<u32>(0u), words, vec4<bool>(at < end));
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
  let cache = (place.x * p.kvHeads + kv) * p.cacheLength + first;
  // All loads of the chunk are in flight before anything waits.
  let start = cache * D8;
  let end = keys * D8;
  let last = start + end - 1u;
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
  for (var i = lane; i < Q_SIZE; i += 128u) {
    queries[i] = q[row * p.qStride4 + kv * Q_SIZE + i];
  }
  let j = lane % 32u * 2u;
  let scale0 = scales[cache + min(j, keys - 1u)];
  let scale1 = scales[cache + min(j + 1u, keys - 1u)];
  let factor = vec2<f32>(scale0.x * p.scale, scale1.x * p.scale);
  let inside = vec2<bool>(j < keys, j + 1u < keys);
  putKey(lane, k0);
  if (2u < D8) { putKey(128u + lane, k1); }
  if (4u < D8) { putKey(256u + lane, k2); }
  if (6u < D8) { putKey(384u + lane, k3); }
  if (8u < D8) { putKey(512u + lane, k4); }
  if (10u < D8) { putKey(640u + lane, k5); }
  if (12u < D8) { putKey(768u + lane, k6); }
  if (14u < D8) { putKey(896u + lane, k7); }
  workgroupBarrier();
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
  putValue(lane, end, v0);
  if (2u < D8) { putValue(128u + lane, end, v1); }
  if (4u < D8) { putValue(256u + lane, end, v2); }
  if (6u < D8) { putValue(384u + lane, end, v3); }
  if (8u < D8) { putValue(512u + lane, end, v4); }
  if (10u < D8) { putValue(640u + lane, end, v5); }
  if (12u < D8) { putValue(768u + lane, end, v6); }
  if (14u < D8) { putValue(896u + lane, end, v7); }
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
