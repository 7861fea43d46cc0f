// The gradient of attention with respect to queries, for one head and a tile of at most ROWS rows of one slot:
//   P_j = exp(fma(dot_j, c_j, -lse)),  dS_j = P_j * (dO . v_j - delta),  dq = scale * sum_j dS_j k_j
// with dot and c of attention-partial.wgsl, delta = sum_d dO[d] out[d], j ascending, one fma a step: a row's bits
// depend on the row and its slot's cache alone. Threads as in attention-flash.wgsl.
struct Params {
  heads: u32,
  kvHeads: u32,
  qStride4: u32,
  outStride4: u32,
  cacheLength: u32,
  scale: f32,
}

override ROWS: u32 = 32u;
override GROUP: u32 = 2u;
override D8: u32 = 16u;
override OUT_GROUPS: u32 = 8u;
override SCORE_ROWS = ROWS / 8u;
override OUT_ROWS = ROWS / OUT_GROUPS;
override Q_PITCH = D8 * 2u + 1u;
override PITCH = D8 + 1u;
override Q_SIZE = ROWS * Q_PITCH;
override TILE = 64u * PITCH;
override P_SIZE = ROWS * 17u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tiles: array<vec4<u32>>;  // first row, rows, slot, first row's position
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;  // [rows, qStride4]
@group(0) @binding(3) var<storage, read> k: array<vec4<u32>>;  // [slots, kvHeads, cacheLength, D8] x 8 f16
@group(0) @binding(4) var<storage, read> v: array<vec4<u32>>;  // as k
@group(0) @binding(5) var<storage, read> scales: array<vec2<f32>>;  // [slots, kvHeads, cacheLength]: of k, of v
@group(0) @binding(6) var<storage, read> dOut: array<vec4<f32>>;  // [rows, outStride4]
@group(0) @binding(7) var<storage, read> stats: array<vec2<f32>>;  // [rows, heads]: lse, delta
@group(0) @binding(8) var<storage, read_write> dq: array<vec4<f32>>;  // [rows, qStride4]

var<workgroup> rows: array<vec4<f32>, Q_SIZE>;  // dO, then q
var<workgroup> tile: array<vec4<u32>, TILE>;  // v, then k: key 4 i + n at 16 n + i
var<workgroup> weights: array<vec4<f32>, P_SIZE>;  // [ROWS, 16 + 1] x 4 keys: dS * c
var<workgroup> factors: array<vec4<f32>, 16>;
var<workgroup> vScales: array<vec4<f32>, 16>;
var<workgroup> own: array<vec2<f32>, ROWS>;

fn step(sum: vec4<f32>, x: vec4<f32>, k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32>) -> vec4<f32> {
  var s = fma(vec4<f32>(x.x), k0, sum);
  s = fma(vec4<f32>(x.y), k1, s);
  s = fma(vec4<f32>(x.z), k2, s);
  return fma(vec4<f32>(x.w), k3, s);
}

fn even(a: u32, b: u32, c: u32, d: u32) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(a).x, unpack2x16float(b).x, unpack2x16float(c).x, unpack2x16float(d).x);
}

fn odd(a: u32, b: u32, c: u32, d: u32) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(a).y, unpack2x16float(b).y, unpack2x16float(c).y, unpack2x16float(d).y);
}

fn inside(key: u32, position: u32) -> vec4<bool> {
  return vec4<u32>(key, key + 1u, key + 2u, key + 3u) <= vec4<u32>(position);
}

fn putKeys(at: u32, end: u32, words: vec4<u32>) {
  if (at < 64u * D8) {
    let key = at / D8;
    tile[(key % 4u * 16u + key / 4u) * PITCH + at % D8] = select(vec4<u32>(0u), words, vec4<bool>(at < end));
  }
}

fn rowOf(place: vec4<u32>, at: u32) -> u32 {
  return place.x + min(at / (D8 * 2u), place.y - 1u);
}

fn putRows(at: u32, value: vec4<f32>) {
  if (at < ROWS * D8 * 2u) {
    rows[at / (D8 * 2u) * Q_PITCH + at % (D8 * 2u)] = value;
  }
}

fn put(place: vec4<u32>, row: u32, column: u32, low: vec4<f32>, high: vec4<f32>) {
  if (row < place.y) {
    let to = (place.x + row) * p.qStride4 + column;
    dq[to] = low;
    dq[to + 1u] = high;
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let h = wg.x;
  let place = tiles[wg.y];
  let lastKey = place.w + place.y - 1u;
  let cache = (place.z * p.kvHeads + h / GROUP) * p.cacheLength;
  let column = h * D8 * 2u;
  let rg = lane % 8u;
  let kg = lane / 8u;
  let og = lane % OUT_GROUPS;
  let dg = lane / OUT_GROUPS;
  if (lane < ROWS) {
    own[lane] = stats[(place.x + min(lane, place.y - 1u)) * p.heads + h];
  }
  var low0 = vec4<f32>(0.0);
  var high0 = vec4<f32>(0.0);
  var low1 = vec4<f32>(0.0);
  var high1 = vec4<f32>(0.0);
  var low2 = vec4<f32>(0.0);
  var high2 = vec4<f32>(0.0);
  var low3 = vec4<f32>(0.0);
  var high3 = vec4<f32>(0.0);
  for (var first = 0u; first <= lastKey; first += 64u) {
    let end = (min(lastKey - first, 63u) + 1u) * D8;
    let start = (cache + first) * D8;
    workgroupBarrier();
    var words0 = vec4<u32>(0u);
    var parts0 = vec4<f32>(0.0);
    var words1 = vec4<u32>(0u);
    var parts1 = vec4<f32>(0.0);
    var words2 = vec4<u32>(0u);
    var parts2 = vec4<f32>(0.0);
    var words3 = vec4<u32>(0u);
    var parts3 = vec4<f32>(0.0);
    var words4 = vec4<u32>(0u);
    var parts4 = vec4<f32>(0.0);
    var words5 = vec4<u32>(0u);
    var parts5 = vec4<f32>(0.0);
    var words6 = vec4<u32>(0u);
    var parts6 = vec4<f32>(0.0);
    var words7 = vec4<u32>(0u);
    var parts7 = vec4<f32>(0.0);
    words0 = v[start + min(lane, end - 1u)];
    if (2u < D8) { words1 = v[start + min(128u + lane, end - 1u)]; }
    if (4u < D8) { words2 = v[start + min(256u + lane, end - 1u)]; }
    if (6u < D8) { words3 = v[start + min(384u + lane, end - 1u)]; }
    if (8u < D8) { words4 = v[start + min(512u + lane, end - 1u)]; }
    if (10u < D8) { words5 = v[start + min(640u + lane, end - 1u)]; }
    if (12u < D8) { words6 = v[start + min(768u + lane, end - 1u)]; }
    if (14u < D8) { words7 = v[start + min(896u + lane, end - 1u)]; }
    parts0 = dOut[rowOf(place, lane) * p.outStride4 + column + lane % (D8 * 2u)];
    if (64u < ROWS * D8) {
      parts1 = dOut[rowOf(place, 128u + lane) * p.outStride4 + column + (128u + lane) % (D8 * 2u)];
    }
    if (128u < ROWS * D8) {
      parts2 = dOut[rowOf(place, 256u + lane) * p.outStride4 + column + (256u + lane) % (D8 * 2u)];
    }
    if (192u < ROWS * D8) {
      parts3 = dOut[rowOf(place, 384u + lane) * p.outStride4 + column + (384u + lane) % (D8 * 2u)];
    }
    if (256u < ROWS * D8) {
      parts4 = dOut[rowOf(place, 512u + lane) * p.outStride4 + column + (512u + lane) % (D8 * 2u)];
    }
    if (320u < ROWS * D8) {
      parts5 = dOut[rowOf(place, 640u + lane) * p.outStride4 + column + (640u + lane) % (D8 * 2u)];
    }
    if (384u < ROWS * D8) {
      parts6 = dOut[rowOf(place, 768u + lane) * p.outStride4 + column + (768u + lane) % (D8 * 2u)];
    }
    if (448u < ROWS * D8) {
      parts7 = dOut[rowOf(place, 896u + lane) * p.outStride4 + column + (896u + lane) % (D8 * 2u)];
    }
    putKeys(lane, end, words0);
    if (2u < D8) { putKeys(128u + lane, end, words1); }
    if (4u < D8) { putKeys(256u + lane, end, words2); }
    if (6u < D8) { putKeys(384u + lane, end, words3); }
    if (8u < D8) { putKeys(512u + lane, end, words4); }
    if (10u < D8) { putKeys(640u + lane, end, words5); }
    if (12u < D8) { putKeys(768u + lane, end, words6); }
    if (14u < D8) { putKeys(896u + lane, end, words7); }
    putRows(lane, parts0);
    if (64u < ROWS * D8) { putRows(128u + lane, parts1); }
    if (128u < ROWS * D8) { putRows(256u + lane, parts2); }
    if (192u < ROWS * D8) { putRows(384u + lane, parts3); }
    if (256u < ROWS * D8) { putRows(512u + lane, parts4); }
    if (320u < ROWS * D8) { putRows(640u + lane, parts5); }
    if (384u < ROWS * D8) { putRows(768u + lane, parts6); }
    if (448u < ROWS * D8) { putRows(896u + lane, parts7); }
    if (lane < 16u) {
      var one = vec4<f32>(0.0);
      var two = vec4<f32>(0.0);
      for (var n = 0u; n < 4u; n++) {
        if (first + lane * 4u + n <= lastKey) {
          let scale = scales[cache + first + lane * 4u + n];
          one[n] = scale.x * p.scale;
          two[n] = scale.y;
        }
      }
      factors[lane] = one;
      vScales[lane] = two;
    }
    workgroupBarrier();
    var g0 = vec4<f32>(0.0);
    var g1 = vec4<f32>(0.0);
    var g2 = vec4<f32>(0.0);
    var g3 = vec4<f32>(0.0);
    for (var t = 0u; t < D8; t++) {
      let a = tile[kg * PITCH + t];
      let b = tile[(kg + 16u) * PITCH + t];
      let c = tile[(kg + 32u) * PITCH + t];
      let d = tile[(kg + 48u) * PITCH + t];
      let k0 = even(a.x, b.x, c.x, d.x);
      let k1 = odd(a.x, b.x, c.x, d.x);
      let k2 = even(a.y, b.y, c.y, d.y);
      let k3 = odd(a.y, b.y, c.y, d.y);
      let k4 = even(a.z, b.z, c.z, d.z);
      let k5 = odd(a.z, b.z, c.z, d.z);
      let k6 = even(a.w, b.w, c.w, d.w);
      let k7 = odd(a.w, b.w, c.w, d.w);
      let x = rg * Q_PITCH + t * 2u;
      g0 = step(g0, rows[x], k0, k1, k2, k3);
      g0 = step(g0, rows[x + 1u], k4, k5, k6, k7);
      if (1u < SCORE_ROWS) {
        g1 = step(g1, rows[x + 8u * Q_PITCH], k0, k1, k2, k3);
        g1 = step(g1, rows[x + 8u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
      if (2u < SCORE_ROWS) {
        g2 = step(g2, rows[x + 16u * Q_PITCH], k0, k1, k2, k3);
        g2 = step(g2, rows[x + 16u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
      if (3u < SCORE_ROWS) {
        g3 = step(g3, rows[x + 24u * Q_PITCH], k0, k1, k2, k3);
        g3 = step(g3, rows[x + 24u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
    }
    workgroupBarrier();
    words0 = k[start + min(lane, end - 1u)];
    if (2u < D8) { words1 = k[start + min(128u + lane, end - 1u)]; }
    if (4u < D8) { words2 = k[start + min(256u + lane, end - 1u)]; }
    if (6u < D8) { words3 = k[start + min(384u + lane, end - 1u)]; }
    if (8u < D8) { words4 = k[start + min(512u + lane, end - 1u)]; }
    if (10u < D8) { words5 = k[start + min(640u + lane, end - 1u)]; }
    if (12u < D8) { words6 = k[start + min(768u + lane, end - 1u)]; }
    if (14u < D8) { words7 = k[start + min(896u + lane, end - 1u)]; }
    parts0 = q[rowOf(place, lane) * p.qStride4 + column + lane % (D8 * 2u)];
    if (64u < ROWS * D8) {
      parts1 = q[rowOf(place, 128u + lane) * p.qStride4 + column + (128u + lane) % (D8 * 2u)];
    }
    if (128u < ROWS * D8) {
      parts2 = q[rowOf(place, 256u + lane) * p.qStride4 + column + (256u + lane) % (D8 * 2u)];
    }
    if (192u < ROWS * D8) {
      parts3 = q[rowOf(place, 384u + lane) * p.qStride4 + column + (384u + lane) % (D8 * 2u)];
    }
    if (256u < ROWS * D8) {
      parts4 = q[rowOf(place, 512u + lane) * p.qStride4 + column + (512u + lane) % (D8 * 2u)];
    }
    if (320u < ROWS * D8) {
      parts5 = q[rowOf(place, 640u + lane) * p.qStride4 + column + (640u + lane) % (D8 * 2u)];
    }
    if (384u < ROWS * D8) {
      parts6 = q[rowOf(place, 768u + lane) * p.qStride4 + column + (768u + lane) % (D8 * 2u)];
    }
    if (448u < ROWS * D8) {
      parts7 = q[rowOf(place, 896u + lane) * p.qStride4 + column + (896u + lane) % (D8 * 2u)];
    }
    putKeys(lane, end, words0);
    if (2u < D8) { putKeys(128u + lane, end, words1); }
    if (4u < D8) { putKeys(256u + lane, end, words2); }
    if (6u < D8) { putKeys(384u + lane, end, words3); }
    if (8u < D8) { putKeys(512u + lane, end, words4); }
    if (10u < D8) { putKeys(640u + lane, end, words5); }
    if (12u < D8) { putKeys(768u + lane, end, words6); }
    if (14u < D8) { putKeys(896u + lane, end, words7); }
    putRows(lane, parts0);
    if (64u < ROWS * D8) { putRows(128u + lane, parts1); }
    if (128u < ROWS * D8) { putRows(256u + lane, parts2); }
    if (192u < ROWS * D8) { putRows(384u + lane, parts3); }
    if (256u < ROWS * D8) { putRows(512u + lane, parts4); }
    if (320u < ROWS * D8) { putRows(640u + lane, parts5); }
    if (384u < ROWS * D8) { putRows(768u + lane, parts6); }
    if (448u < ROWS * D8) { putRows(896u + lane, parts7); }
    workgroupBarrier();
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var t = 0u; t < D8; t++) {
      let a = tile[kg * PITCH + t];
      let b = tile[(kg + 16u) * PITCH + t];
      let c = tile[(kg + 32u) * PITCH + t];
      let d = tile[(kg + 48u) * PITCH + t];
      let k0 = even(a.x, b.x, c.x, d.x);
      let k1 = odd(a.x, b.x, c.x, d.x);
      let k2 = even(a.y, b.y, c.y, d.y);
      let k3 = odd(a.y, b.y, c.y, d.y);
      let k4 = even(a.z, b.z, c.z, d.z);
      let k5 = odd(a.z, b.z, c.z, d.z);
      let k6 = even(a.w, b.w, c.w, d.w);
      let k7 = odd(a.w, b.w, c.w, d.w);
      let x = rg * Q_PITCH + t * 2u;
      s0 = step(s0, rows[x], k0, k1, k2, k3);
      s0 = step(s0, rows[x + 1u], k4, k5, k6, k7);
      if (1u < SCORE_ROWS) {
        s1 = step(s1, rows[x + 8u * Q_PITCH], k0, k1, k2, k3);
        s1 = step(s1, rows[x + 8u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
      if (2u < SCORE_ROWS) {
        s2 = step(s2, rows[x + 16u * Q_PITCH], k0, k1, k2, k3);
        s2 = step(s2, rows[x + 16u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
      if (3u < SCORE_ROWS) {
        s3 = step(s3, rows[x + 24u * Q_PITCH], k0, k1, k2, k3);
        s3 = step(s3, rows[x + 24u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
    }
    let factor = factors[kg];
    let vScale = vScales[kg];
    let j = first + kg * 4u;
    let row0 = rg;
    let e0 = exp(fma(s0, factor, vec4<f32>(-own[row0].x))) * fma(g0, vScale, vec4<f32>(-own[row0].y));
    weights[row0 * 17u + kg] = select(vec4<f32>(0.0), e0 * factor, inside(j, place.w + row0));
    if (1u < SCORE_ROWS) {
      let row1 = rg + 8u;
      let e1 = exp(fma(s1, factor, vec4<f32>(-own[row1].x))) * fma(g1, vScale, vec4<f32>(-own[row1].y));
      weights[row1 * 17u + kg] = select(vec4<f32>(0.0), e1 * factor, inside(j, place.w + row1));
    }
    if (2u < SCORE_ROWS) {
      let row2 = rg + 16u;
      let e2 = exp(fma(s2, factor, vec4<f32>(-own[row2].x))) * fma(g2, vScale, vec4<f32>(-own[row2].y));
      weights[row2 * 17u + kg] = select(vec4<f32>(0.0), e2 * factor, inside(j, place.w + row2));
    }
    if (3u < SCORE_ROWS) {
      let row3 = rg + 24u;
      let e3 = exp(fma(s3, factor, vec4<f32>(-own[row3].x))) * fma(g3, vScale, vec4<f32>(-own[row3].y));
      weights[row3 * 17u + kg] = select(vec4<f32>(0.0), e3 * factor, inside(j, place.w + row3));
    }
    workgroupBarrier();
    if (dg < D8) {
      for (var t = 0u; t < 16u; t++) {
        var w0 = vec4<f32>(0.0);
        var w1 = vec4<f32>(0.0);
        var w2 = vec4<f32>(0.0);
        var w3 = vec4<f32>(0.0);
        w0 = weights[(og) * 17u + t];
        if (1u < OUT_ROWS) { w1 = weights[(og + 1u * OUT_GROUPS) * 17u + t]; }
        if (2u < OUT_ROWS) { w2 = weights[(og + 2u * OUT_GROUPS) * 17u + t]; }
        if (3u < OUT_ROWS) { w3 = weights[(og + 3u * OUT_GROUPS) * 17u + t]; }
        let v0 = tile[t * PITCH + dg];
        let lowx = vec4<f32>(unpack2x16float(v0.x), unpack2x16float(v0.y));
        let highx = vec4<f32>(unpack2x16float(v0.z), unpack2x16float(v0.w));
        low0 = fma(vec4<f32>(w0.x), lowx, low0);
        high0 = fma(vec4<f32>(w0.x), highx, high0);
        if (1u < OUT_ROWS) { low1 = fma(vec4<f32>(w1.x), lowx, low1); high1 = fma(vec4<f32>(w1.x), highx, high1); }
        if (2u < OUT_ROWS) { low2 = fma(vec4<f32>(w2.x), lowx, low2); high2 = fma(vec4<f32>(w2.x), highx, high2); }
        if (3u < OUT_ROWS) { low3 = fma(vec4<f32>(w3.x), lowx, low3); high3 = fma(vec4<f32>(w3.x), highx, high3); }
        let v1 = tile[(16u + t) * PITCH + dg];
        let lowy = vec4<f32>(unpack2x16float(v1.x), unpack2x16float(v1.y));
        let highy = vec4<f32>(unpack2x16float(v1.z), unpack2x16float(v1.w));
        low0 = fma(vec4<f32>(w0.y), lowy, low0);
        high0 = fma(vec4<f32>(w0.y), highy, high0);
        if (1u < OUT_ROWS) { low1 = fma(vec4<f32>(w1.y), lowy, low1); high1 = fma(vec4<f32>(w1.y), highy, high1); }
        if (2u < OUT_ROWS) { low2 = fma(vec4<f32>(w2.y), lowy, low2); high2 = fma(vec4<f32>(w2.y), highy, high2); }
        if (3u < OUT_ROWS) { low3 = fma(vec4<f32>(w3.y), lowy, low3); high3 = fma(vec4<f32>(w3.y), highy, high3); }
        let v2 = tile[(32u + t) * PITCH + dg];
        let lowz = vec4<f32>(unpack2x16float(v2.x), unpack2x16float(v2.y));
        let highz = vec4<f32>(unpack2x16float(v2.z), unpack2x16float(v2.w));
        low0 = fma(vec4<f32>(w0.z), lowz, low0);
        high0 = fma(vec4<f32>(w0.z), highz, high0);
        if (1u < OUT_ROWS) { low1 = fma(vec4<f32>(w1.z), lowz, low1); high1 = fma(vec4<f32>(w1.z), highz, high1); }
        if (2u < OUT_ROWS) { low2 = fma(vec4<f32>(w2.z), lowz, low2); high2 = fma(vec4<f32>(w2.z), highz, high2); }
        if (3u < OUT_ROWS) { low3 = fma(vec4<f32>(w3.z), lowz, low3); high3 = fma(vec4<f32>(w3.z), highz, high3); }
        let v3 = tile[(48u + t) * PITCH + dg];
        let loww = vec4<f32>(unpack2x16float(v3.x), unpack2x16float(v3.y));
        let highw = vec4<f32>(unpack2x16float(v3.z), unpack2x16float(v3.w));
        low0 = fma(vec4<f32>(w0.w), loww, low0);
        high0 = fma(vec4<f32>(w0.w), highw, high0);
        if (1u < OUT_ROWS) { low1 = fma(vec4<f32>(w1.w), loww, low1); high1 = fma(vec4<f32>(w1.w), highw, high1); }
        if (2u < OUT_ROWS) { low2 = fma(vec4<f32>(w2.w), loww, low2); high2 = fma(vec4<f32>(w2.w), highw, high2); }
        if (3u < OUT_ROWS) { low3 = fma(vec4<f32>(w3.w), loww, low3); high3 = fma(vec4<f32>(w3.w), highw, high3); }
      }
    }
  }
  if (dg < D8) {
    put(place, og, column + dg * 2u, low0, high0);
    if (1u < OUT_ROWS) { put(place, og + 1u * OUT_GROUPS, column + dg * 2u, low1, high1); }
    if (2u < OUT_ROWS) { put(place, og + 2u * OUT_GROUPS, column + dg * 2u, low2, high2); }
    if (3u < OUT_ROWS) { put(place, og + 3u * OUT_GROUPS, column + dg * 2u, low3, high3); }
  }
}
