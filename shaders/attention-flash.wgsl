// Attention of runs of rows over a 16-bit cache, for one head and a tile of at most ROWS rows of one slot at ascending
// positions: out, and lse = m + log(l) for the backward pass. Chunks of 64 keys as attention-partial.wgsl computes them
// and joined as attention-merge.wgsl does, bit for bit, so a row's bits do not depend on the tile. A thread has, for
// scores, up to four rows, eight apart, times four neighbouring keys; for values, up to four rows, OUT_GROUPS apart,
// times eight elements. A lane for each row keeps its m and l.
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
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;  // [rows, outStride4]
@group(0) @binding(7) var<storage, read_write> lse: array<f32>;  // [rows, heads]

var<workgroup> queries: array<vec4<f32>, Q_SIZE>;
var<workgroup> tile: array<vec4<u32>, TILE>;  // k with key 4 i + n at 16 n + i, then v in order
var<workgroup> weights: array<vec4<f32>, P_SIZE>;  // [ROWS, 16 + 1] x 4 keys: scores, exp, exp * vScale
var<workgroup> factors: array<vec4<f32>, 16>;
var<workgroup> vScales: array<vec4<f32>, 16>;
var<workgroup> tops: array<f32, ROWS>;
var<workgroup> keep: array<f32, ROWS>;
var<workgroup> take: array<f32, ROWS>;

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

fn putValues(at: u32, end: u32, words: vec4<u32>) {
  if (at < 64u * D8) {
    tile[at / D8 * PITCH + at % D8] = select(vec4<u32>(0u), words, vec4<bool>(at < end));
  }
}

fn put(place: vec4<u32>, row: u32, column: u32, low: vec4<f32>, high: vec4<f32>) {
  if (row < place.y) {
    let to = (place.x + row) * p.outStride4 + column;
    out[to] = low * tops[row];
    out[to + 1u] = high * tops[row];
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let h = wg.x;
  let place = tiles[wg.y];
  let lastKey = place.w + place.y - 1u;
  let cache = (place.z * p.kvHeads + h / GROUP) * p.cacheLength;
  let rg = lane % 8u;
  let kg = lane / 8u;
  let og = lane % OUT_GROUPS;
  let dg = lane / OUT_GROUPS;
  for (var i = lane; i < ROWS * D8 * 2u; i += 128u) {
    let row = i / (D8 * 2u);
    let d = i % (D8 * 2u);
    var value = vec4<f32>(0.0);
    if (row < place.y) {
      value = q[(place.x + row) * p.qStride4 + h * D8 * 2u + d];
    }
    queries[row * Q_PITCH + d] = value;
  }
  var m = -1e30;
  var l = 0.0;
  var low0 = vec4<f32>(0.0);
  var high0 = vec4<f32>(0.0);
  var low1 = vec4<f32>(0.0);
  var high1 = vec4<f32>(0.0);
  var low2 = vec4<f32>(0.0);
  var high2 = vec4<f32>(0.0);
  var low3 = vec4<f32>(0.0);
  var high3 = vec4<f32>(0.0);
  for (var first = 0u; first <= lastKey; first += 64u) {
    let keys = min(lastKey - first + 1u, 64u);
    let start = (cache + first) * D8;
    let end = keys * D8;
    workgroupBarrier();
    var words0 = vec4<u32>(0u);
    var words1 = vec4<u32>(0u);
    var words2 = vec4<u32>(0u);
    var words3 = vec4<u32>(0u);
    var words4 = vec4<u32>(0u);
    var words5 = vec4<u32>(0u);
    var words6 = vec4<u32>(0u);
    var words7 = vec4<u32>(0u);
    words0 = k[start + min(lane, end - 1u)];
    if (2u < D8) { words1 = k[start + min(128u + lane, end - 1u)]; }
    if (4u < D8) { words2 = k[start + min(256u + lane, end - 1u)]; }
    if (6u < D8) { words3 = k[start + min(384u + lane, end - 1u)]; }
    if (8u < D8) { words4 = k[start + min(512u + lane, end - 1u)]; }
    if (10u < D8) { words5 = k[start + min(640u + lane, end - 1u)]; }
    if (12u < D8) { words6 = k[start + min(768u + lane, end - 1u)]; }
    if (14u < D8) { words7 = k[start + min(896u + lane, end - 1u)]; }
    putKeys(lane, end, words0);
    if (2u < D8) { putKeys(128u + lane, end, words1); }
    if (4u < D8) { putKeys(256u + lane, end, words2); }
    if (6u < D8) { putKeys(384u + lane, end, words3); }
    if (8u < D8) { putKeys(512u + lane, end, words4); }
    if (10u < D8) { putKeys(640u + lane, end, words5); }
    if (12u < D8) { putKeys(768u + lane, end, words6); }
    if (14u < D8) { putKeys(896u + lane, end, words7); }
    if (lane < 16u) {
      let at = cache + first + lane * 4u;
      var one = vec4<f32>(0.0);
      var two = vec4<f32>(0.0);
      for (var n = 0u; n < 4u; n++) {
        if (lane * 4u + n < keys) {
          let scale = scales[at + n];
          one[n] = scale.x * p.scale;
          two[n] = scale.y;
        }
      }
      factors[lane] = one;
      vScales[lane] = two;
    }
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
      s0 = step(s0, queries[x], k0, k1, k2, k3);
      s0 = step(s0, queries[x + 1u], k4, k5, k6, k7);
      if (1u < SCORE_ROWS) {
        s1 = step(s1, queries[x + 8u * Q_PITCH], k0, k1, k2, k3);
        s1 = step(s1, queries[x + 8u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
      if (2u < SCORE_ROWS) {
        s2 = step(s2, queries[x + 16u * Q_PITCH], k0, k1, k2, k3);
        s2 = step(s2, queries[x + 16u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
      if (3u < SCORE_ROWS) {
        s3 = step(s3, queries[x + 24u * Q_PITCH], k0, k1, k2, k3);
        s3 = step(s3, queries[x + 24u * Q_PITCH + 1u], k4, k5, k6, k7);
      }
    }
    let factor = factors[kg];
    let j = first + kg * 4u;
    let row = place.w + rg;
    let at = rg * 17u + kg;
    weights[at] = select(vec4<f32>(-1e30), s0 * factor, inside(j, row));
    if (1u < SCORE_ROWS) {
      weights[at + 136u] = select(vec4<f32>(-1e30), s1 * factor, inside(j, row + 8u));
    }
    if (2u < SCORE_ROWS) {
      weights[at + 272u] = select(vec4<f32>(-1e30), s2 * factor, inside(j, row + 16u));
    }
    if (3u < SCORE_ROWS) {
      weights[at + 408u] = select(vec4<f32>(-1e30), s3 * factor, inside(j, row + 24u));
    }
    workgroupBarrier();
    words0 = v[start + min(lane, end - 1u)];
    if (2u < D8) { words1 = v[start + min(128u + lane, end - 1u)]; }
    if (4u < D8) { words2 = v[start + min(256u + lane, end - 1u)]; }
    if (6u < D8) { words3 = v[start + min(384u + lane, end - 1u)]; }
    if (8u < D8) { words4 = v[start + min(512u + lane, end - 1u)]; }
    if (10u < D8) { words5 = v[start + min(640u + lane, end - 1u)]; }
    if (12u < D8) { words6 = v[start + min(768u + lane, end - 1u)]; }
    if (14u < D8) { words7 = v[start + min(896u + lane, end - 1u)]; }
    putValues(lane, end, words0);
    if (2u < D8) { putValues(128u + lane, end, words1); }
    if (4u < D8) { putValues(256u + lane, end, words2); }
    if (6u < D8) { putValues(384u + lane, end, words3); }
    if (8u < D8) { putValues(512u + lane, end, words4); }
    if (10u < D8) { putValues(640u + lane, end, words5); }
    if (12u < D8) { putValues(768u + lane, end, words6); }
    if (14u < D8) { putValues(896u + lane, end, words7); }
    if (lane < ROWS) {
      var most = weights[lane * 17u];
      for (var i = 1u; i < 16u; i++) {
        most = max(most, weights[lane * 17u + i]);
      }
      tops[lane] = max(max(most.x, most.y), max(most.z, most.w));
    }
    workgroupBarrier();
    let e0 = exp(fma(s0, factor, vec4<f32>(-tops[rg])));
    weights[at] = select(vec4<f32>(0.0), e0, inside(j, row));
    if (1u < SCORE_ROWS) {
      let e1 = exp(fma(s1, factor, vec4<f32>(-tops[rg + 8u])));
      weights[at + 136u] = select(vec4<f32>(0.0), e1, inside(j, row + 8u));
    }
    if (2u < SCORE_ROWS) {
      let e2 = exp(fma(s2, factor, vec4<f32>(-tops[rg + 16u])));
      weights[at + 272u] = select(vec4<f32>(0.0), e2, inside(j, row + 16u));
    }
    if (3u < SCORE_ROWS) {
      let e3 = exp(fma(s3, factor, vec4<f32>(-tops[rg + 24u])));
      weights[at + 408u] = select(vec4<f32>(0.0), e3, inside(j, row + 24u));
    }
    workgroupBarrier();
    if (lane < ROWS) {
      var sum = 0.0;
      for (var i = 0u; i < 16u; i++) {
        let e = weights[lane * 17u + i];
        sum = sum + e.x;
        sum = sum + e.y;
        sum = sum + e.z;
        sum = sum + e.w;
        weights[lane * 17u + i] = e * vScales[i];
      }
      let own = tops[lane];
      let top = max(m, own);
      // A row that is before the whole chunk keeps what it has.
      let some = first <= place.w + lane;
      let a = select(1.0, exp(m - top), some);
      let b = select(0.0, exp(own - top), some);
      l = fma(sum, b, l * a);
      m = select(m, top, some);
      keep[lane] = a;
      take[lane] = b;
    }
    workgroupBarrier();
    if (dg < D8) {
      var x0 = vec4<f32>(0.0);
      var y0 = vec4<f32>(0.0);
      var x1 = vec4<f32>(0.0);
      var y1 = vec4<f32>(0.0);
      var x2 = vec4<f32>(0.0);
      var y2 = vec4<f32>(0.0);
      var x3 = vec4<f32>(0.0);
      var y3 = vec4<f32>(0.0);
      for (var t = 0u; t < 16u; t++) {
        let left = og * 17u + t;
        var w0 = vec4<f32>(0.0);
        var w1 = vec4<f32>(0.0);
        var w2 = vec4<f32>(0.0);
        var w3 = vec4<f32>(0.0);
        w0 = weights[left];
        if (1u < OUT_ROWS) { w1 = weights[left + 1u * OUT_GROUPS * 17u]; }
        if (2u < OUT_ROWS) { w2 = weights[left + 2u * OUT_GROUPS * 17u]; }
        if (3u < OUT_ROWS) { w3 = weights[left + 3u * OUT_GROUPS * 17u]; }
        let v0 = tile[(t * 4u) * PITCH + dg];
        let lowx = vec4<f32>(unpack2x16float(v0.x), unpack2x16float(v0.y));
        let highx = vec4<f32>(unpack2x16float(v0.z), unpack2x16float(v0.w));
        x0 = fma(vec4<f32>(w0.x), lowx, x0);
        y0 = fma(vec4<f32>(w0.x), highx, y0);
        if (1u < OUT_ROWS) { x1 = fma(vec4<f32>(w1.x), lowx, x1); y1 = fma(vec4<f32>(w1.x), highx, y1); }
        if (2u < OUT_ROWS) { x2 = fma(vec4<f32>(w2.x), lowx, x2); y2 = fma(vec4<f32>(w2.x), highx, y2); }
        if (3u < OUT_ROWS) { x3 = fma(vec4<f32>(w3.x), lowx, x3); y3 = fma(vec4<f32>(w3.x), highx, y3); }
        let v1 = tile[(t * 4u + 1u) * PITCH + dg];
        let lowy = vec4<f32>(unpack2x16float(v1.x), unpack2x16float(v1.y));
        let highy = vec4<f32>(unpack2x16float(v1.z), unpack2x16float(v1.w));
        x0 = fma(vec4<f32>(w0.y), lowy, x0);
        y0 = fma(vec4<f32>(w0.y), highy, y0);
        if (1u < OUT_ROWS) { x1 = fma(vec4<f32>(w1.y), lowy, x1); y1 = fma(vec4<f32>(w1.y), highy, y1); }
        if (2u < OUT_ROWS) { x2 = fma(vec4<f32>(w2.y), lowy, x2); y2 = fma(vec4<f32>(w2.y), highy, y2); }
        if (3u < OUT_ROWS) { x3 = fma(vec4<f32>(w3.y), lowy, x3); y3 = fma(vec4<f32>(w3.y), highy, y3); }
        let v2 = tile[(t * 4u + 2u) * PITCH + dg];
        let lowz = vec4<f32>(unpack2x16float(v2.x), unpack2x16float(v2.y));
        let highz = vec4<f32>(unpack2x16float(v2.z), unpack2x16float(v2.w));
        x0 = fma(vec4<f32>(w0.z), lowz, x0);
        y0 = fma(vec4<f32>(w0.z), highz, y0);
        if (1u < OUT_ROWS) { x1 = fma(vec4<f32>(w1.z), lowz, x1); y1 = fma(vec4<f32>(w1.z), highz, y1); }
        if (2u < OUT_ROWS) { x2 = fma(vec4<f32>(w2.z), lowz, x2); y2 = fma(vec4<f32>(w2.z), highz, y2); }
        if (3u < OUT_ROWS) { x3 = fma(vec4<f32>(w3.z), lowz, x3); y3 = fma(vec4<f32>(w3.z), highz, y3); }
        let v3 = tile[(t * 4u + 3u) * PITCH + dg];
        let loww = vec4<f32>(unpack2x16float(v3.x), unpack2x16float(v3.y));
        let highw = vec4<f32>(unpack2x16float(v3.z), unpack2x16float(v3.w));
        x0 = fma(vec4<f32>(w0.w), loww, x0);
        y0 = fma(vec4<f32>(w0.w), highw, y0);
        if (1u < OUT_ROWS) { x1 = fma(vec4<f32>(w1.w), loww, x1); y1 = fma(vec4<f32>(w1.w), highw, y1); }
        if (2u < OUT_ROWS) { x2 = fma(vec4<f32>(w2.w), loww, x2); y2 = fma(vec4<f32>(w2.w), highw, y2); }
        if (3u < OUT_ROWS) { x3 = fma(vec4<f32>(w3.w), loww, x3); y3 = fma(vec4<f32>(w3.w), highw, y3); }
      }
      let a0 = keep[og];
      let b0 = take[og];
      low0 = fma(x0, vec4<f32>(b0), low0 * a0);
      high0 = fma(y0, vec4<f32>(b0), high0 * a0);
      if (1u < OUT_ROWS) {
        let a1 = keep[og + 1u * OUT_GROUPS];
        let b1 = take[og + 1u * OUT_GROUPS];
        low1 = fma(x1, vec4<f32>(b1), low1 * a1);
        high1 = fma(y1, vec4<f32>(b1), high1 * a1);
      }
      if (2u < OUT_ROWS) {
        let a2 = keep[og + 2u * OUT_GROUPS];
        let b2 = take[og + 2u * OUT_GROUPS];
        low2 = fma(x2, vec4<f32>(b2), low2 * a2);
        high2 = fma(y2, vec4<f32>(b2), high2 * a2);
      }
      if (3u < OUT_ROWS) {
        let a3 = keep[og + 3u * OUT_GROUPS];
        let b3 = take[og + 3u * OUT_GROUPS];
        low3 = fma(x3, vec4<f32>(b3), low3 * a3);
        high3 = fma(y3, vec4<f32>(b3), high3 * a3);
      }
    }
  }
  if (lane < ROWS) {
    tops[lane] = 1.0 / l;
    if (lane < place.y) {
      lse[(place.x + lane) * p.heads + h] = m + log(l);
    }
  }
  workgroupBarrier();
  if (dg < D8) {
    put(place, og, h * D8 * 2u + dg * 2u, low0, high0);
    if (1u < OUT_ROWS) { put(place, og + 1u * OUT_GROUPS, h * D8 * 2u + dg * 2u, low1, high1); }
    if (2u < OUT_ROWS) { put(place, og + 2u * OUT_GROUPS, h * D8 * 2u + dg * 2u, low2, high2); }
    if (3u < OUT_ROWS) { put(place, og + 3u * OUT_GROUPS, h * D8 * 2u + dg * 2u, low3, high3); }
  }
}
