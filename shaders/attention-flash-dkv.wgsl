// The gradients of attention with respect to keys and values, for 32 keys of one key-value head of one run of rows:
//   dv_j = sum P_j dO,  dk_j = scale * sum dS_j q   with P and dS of attention-flash-dq.wgsl,
// over the query heads of the key-value head in order, for each over the run's rows that see the keys, ascending, one
// fma a step: no atomics, and the bits depend on the run alone. A thread has, for scores, rows sixteen apart times four
// neighbouring keys; for gradients, four keys times eight elements. Keys after the run's last row are not written.
struct Params {
  heads: u32,
  kvHeads: u32,
  qStride4: u32,
  outStride4: u32,
  cacheLength: u32,
  kvStride4: u32,
  scale: f32,
}

override ROWS: u32 = 32u;
override GROUP: u32 = 2u;
override D8: u32 = 16u;
override SCORE_ROWS = ROWS / 16u;
override Q_PITCH = D8 * 2u + 1u;
override PITCH = D8 + 1u;
override Q_SIZE = ROWS * Q_PITCH;
override TILE = 32u * PITCH;
override P_SIZE = ROWS * 9u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> runs: array<vec4<u32>>;  // first row, rows, slot, first row's position
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;  // [rows, qStride4]
@group(0) @binding(3) var<storage, read> k: array<vec4<u32>>;  // [slots, kvHeads, cacheLength, D8] x 8 f16
@group(0) @binding(4) var<storage, read> v: array<vec4<u32>>;  // as k
@group(0) @binding(5) var<storage, read> scales: array<vec2<f32>>;  // [slots, kvHeads, cacheLength]: of k, of v
@group(0) @binding(6) var<storage, read> dOut: array<vec4<f32>>;  // [rows, outStride4]
@group(0) @binding(7) var<storage, read> stats: array<vec2<f32>>;  // [rows, heads]: lse, delta
@group(0) @binding(8) var<storage, read_write> dk: array<vec4<f32>>;  // [slots, cacheLength, kvStride4]
@group(0) @binding(9) var<storage, read_write> dv: array<vec4<f32>>;  // as dk

var<workgroup> rows: array<vec4<f32>, Q_SIZE>;  // q, dO, q again
var<workgroup> keyTile: array<vec4<u32>, TILE>;  // key 4 i + n at 8 n + i
var<workgroup> valueTile: array<vec4<u32>, TILE>;
var<workgroup> probabilities: array<vec4<f32>, P_SIZE>;  // [ROWS, 8 + 1] x 4 keys
var<workgroup> gradients: array<vec4<f32>, P_SIZE>;  // scale * dS
var<workgroup> factors: array<vec4<f32>, 8>;
var<workgroup> vScales: array<vec4<f32>, 8>;
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

fn inside(key: u32, end: u32) -> vec4<bool> {
  return vec4<u32>(key, key + 1u, key + 2u, key + 3u) < vec4<u32>(end);
}

// One past the last key that a row of a tile sees; 0 for a row past the run.
fn seenBy(place: vec4<u32>, row: u32) -> u32 {
  return select(0u, place.w + row + 1u, row < place.y);
}

fn putKeys(at: u32, keyWords: vec4<u32>, valueWords: vec4<u32>) {
  if (at < 32u * D8) {
    let key = at / D8;
    let to = (key % 4u * 8u + key / 4u) * PITCH + at % D8;
    keyTile[to] = keyWords;
    valueTile[to] = valueWords;
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

fn put(run: vec4<u32>, first: u32, key: u32, column: u32, sums: array<vec4<f32>, 4>) {
  if (first + key < run.w + run.y) {
    let to = (run.z * p.cacheLength + first + key) * p.kvStride4 + column;
    dk[to] = sums[0];
    dk[to + D8] = sums[1];
    dv[to] = sums[2];
    dv[to + D8] = sums[3];
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let kv = wg.x % p.kvHeads;
  let run = runs[wg.x / p.kvHeads];
  let firstKey = wg.y * 32u;
  if (firstKey >= run.w + run.y) {
    return;
  }
  let keys = min(run.w + run.y - firstKey, 32u);
  let cache = (run.z * p.kvHeads + kv) * p.cacheLength + firstKey;
  let start = cache * D8;
  let end = keys * D8;
  let rg = lane % 16u;
  let kg = lane / 16u;
  let og = lane % 8u;
  let dg = min(lane / 8u, D8 - 1u);
  var keyWords0 = vec4<u32>(0u);
  var valueWords0 = vec4<u32>(0u);
  var keyWords1 = vec4<u32>(0u);
  var valueWords1 = vec4<u32>(0u);
  var keyWords2 = vec4<u32>(0u);
  var valueWords2 = vec4<u32>(0u);
  var keyWords3 = vec4<u32>(0u);
  var valueWords3 = vec4<u32>(0u);
  keyWords0 = k[start + min(lane, end - 1u)];
  valueWords0 = v[start + min(lane, end - 1u)];
  if (4u < D8) {
    keyWords1 = k[start + min(128u + lane, end - 1u)];
    valueWords1 = v[start + min(128u + lane, end - 1u)];
  }
  if (8u < D8) {
    keyWords2 = k[start + min(256u + lane, end - 1u)];
    valueWords2 = v[start + min(256u + lane, end - 1u)];
  }
  if (12u < D8) {
    keyWords3 = k[start + min(384u + lane, end - 1u)];
    valueWords3 = v[start + min(384u + lane, end - 1u)];
  }
  putKeys(lane, keyWords0, valueWords0);
  if (4u < D8) { putKeys(128u + lane, keyWords1, valueWords1); }
  if (8u < D8) { putKeys(256u + lane, keyWords2, valueWords2); }
  if (12u < D8) { putKeys(384u + lane, keyWords3, valueWords3); }
  if (lane < 8u) {
    var one = vec4<f32>(0.0);
    var two = vec4<f32>(0.0);
    for (var n = 0u; n < 4u; n++) {
      let scale = scales[cache + min(lane * 4u + n, keys - 1u)];
      one[n] = scale.x * p.scale;
      two[n] = scale.y;
    }
    factors[lane] = one;
    vScales[lane] = two;
  }
  var keyLow0 = vec4<f32>(0.0);
  var keyHigh0 = vec4<f32>(0.0);
  var valueLow0 = vec4<f32>(0.0);
  var valueHigh0 = vec4<f32>(0.0);
  var keyLow1 = vec4<f32>(0.0);
  var keyHigh1 = vec4<f32>(0.0);
  var valueLow1 = vec4<f32>(0.0);
  var valueHigh1 = vec4<f32>(0.0);
  var keyLow2 = vec4<f32>(0.0);
  var keyHigh2 = vec4<f32>(0.0);
  var valueLow2 = vec4<f32>(0.0);
  var valueHigh2 = vec4<f32>(0.0);
  var keyLow3 = vec4<f32>(0.0);
  var keyHigh3 = vec4<f32>(0.0);
  var valueLow3 = vec4<f32>(0.0);
  var valueHigh3 = vec4<f32>(0.0);
  // Rows before the first key see none of the keys.
  let begin = max(firstKey, run.w) - run.w;
  for (var h = kv * GROUP; h < kv * GROUP + GROUP; h++) {
    let column = h * D8 * 2u;
    for (var base = begin; base < run.y; base += ROWS) {
      let place = vec4<u32>(run.x + base, run.y - base, run.z, run.w + base);
      workgroupBarrier();
      if (lane < ROWS) {
        own[lane] = stats[(place.x + min(lane, place.y - 1u)) * p.heads + h];
      }
      var parts0 = vec4<f32>(0.0);
      var parts1 = vec4<f32>(0.0);
      var parts2 = vec4<f32>(0.0);
      var parts3 = vec4<f32>(0.0);
      var parts4 = vec4<f32>(0.0);
      var parts5 = vec4<f32>(0.0);
      var parts6 = vec4<f32>(0.0);
      var parts7 = vec4<f32>(0.0);
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
      for (var t = 0u; t < D8; t++) {
        let a = keyTile[kg * PITCH + t];
        let b = keyTile[(kg + 8u) * PITCH + t];
        let c = keyTile[(kg + 16u) * PITCH + t];
        let d = keyTile[(kg + 24u) * PITCH + t];
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
          s1 = step(s1, rows[x + 16u * Q_PITCH], k0, k1, k2, k3);
          s1 = step(s1, rows[x + 16u * Q_PITCH + 1u], k4, k5, k6, k7);
        }
      }
      let factor = factors[kg];
      let vScale = vScales[kg];
      let j = firstKey + kg * 4u;
      s0 = exp(fma(s0, factor, vec4<f32>(-own[rg].x)));
      s0 = select(vec4<f32>(0.0), s0, inside(j, seenBy(place, rg)));
      probabilities[rg * 9u + kg] = s0;
      if (1u < SCORE_ROWS) {
        s1 = exp(fma(s1, factor, vec4<f32>(-own[rg + 16u].x)));
        s1 = select(vec4<f32>(0.0), s1, inside(j, seenBy(place, rg + 16u)));
        probabilities[(rg + 16u) * 9u + kg] = s1;
      }
      workgroupBarrier();
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
      putRows(lane, parts0);
      if (64u < ROWS * D8) { putRows(128u + lane, parts1); }
      if (128u < ROWS * D8) { putRows(256u + lane, parts2); }
      if (192u < ROWS * D8) { putRows(384u + lane, parts3); }
      if (256u < ROWS * D8) { putRows(512u + lane, parts4); }
      if (320u < ROWS * D8) { putRows(640u + lane, parts5); }
      if (384u < ROWS * D8) { putRows(768u + lane, parts6); }
      if (448u < ROWS * D8) { putRows(896u + lane, parts7); }
      workgroupBarrier();
      var g0 = vec4<f32>(0.0);
      var g1 = vec4<f32>(0.0);
      for (var t = 0u; t < D8; t++) {
        let a = valueTile[kg * PITCH + t];
        let b = valueTile[(kg + 8u) * PITCH + t];
        let c = valueTile[(kg + 16u) * PITCH + t];
        let d = valueTile[(kg + 24u) * PITCH + t];
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
          g1 = step(g1, rows[x + 16u * Q_PITCH], k0, k1, k2, k3);
          g1 = step(g1, rows[x + 16u * Q_PITCH + 1u], k4, k5, k6, k7);
        }
      }
      gradients[rg * 9u + kg] = s0 * fma(g0, vScale, vec4<f32>(-own[rg].y)) * p.scale;
      if (1u < SCORE_ROWS) {
        gradients[(rg + 16u) * 9u + kg] = s1 * fma(g1, vScale, vec4<f32>(-own[rg + 16u].y)) * p.scale;
      }
      // The probabilities were written before the last barrier but one; all of dO is there.
      for (var r = 0u; r < ROWS; r++) {
        let low = rows[r * Q_PITCH + dg];
        let high = rows[r * Q_PITCH + D8 + dg];
        let w = probabilities[r * 9u + og];
        valueLow0 = fma(vec4<f32>(w.x), low, valueLow0);
        valueHigh0 = fma(vec4<f32>(w.x), high, valueHigh0);
        valueLow1 = fma(vec4<f32>(w.y), low, valueLow1);
        valueHigh1 = fma(vec4<f32>(w.y), high, valueHigh1);
        valueLow2 = fma(vec4<f32>(w.z), low, valueLow2);
        valueHigh2 = fma(vec4<f32>(w.z), high, valueHigh2);
        valueLow3 = fma(vec4<f32>(w.w), low, valueLow3);
        valueHigh3 = fma(vec4<f32>(w.w), high, valueHigh3);
      }
      workgroupBarrier();
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
      putRows(lane, parts0);
      if (64u < ROWS * D8) { putRows(128u + lane, parts1); }
      if (128u < ROWS * D8) { putRows(256u + lane, parts2); }
      if (192u < ROWS * D8) { putRows(384u + lane, parts3); }
      if (256u < ROWS * D8) { putRows(512u + lane, parts4); }
      if (320u < ROWS * D8) { putRows(640u + lane, parts5); }
      if (384u < ROWS * D8) { putRows(768u + lane, parts6); }
      if (448u < ROWS * D8) { putRows(896u + lane, parts7); }
      workgroupBarrier();
      for (var r = 0u; r < ROWS; r++) {
        let low = rows[r * Q_PITCH + dg];
        let high = rows[r * Q_PITCH + D8 + dg];
        let w = gradients[r * 9u + og];
        keyLow0 = fma(vec4<f32>(w.x), low, keyLow0);
        keyHigh0 = fma(vec4<f32>(w.x), high, keyHigh0);
        keyLow1 = fma(vec4<f32>(w.y), low, keyLow1);
        keyHigh1 = fma(vec4<f32>(w.y), high, keyHigh1);
        keyLow2 = fma(vec4<f32>(w.z), low, keyLow2);
        keyHigh2 = fma(vec4<f32>(w.z), high, keyHigh2);
        keyLow3 = fma(vec4<f32>(w.w), low, keyLow3);
        keyHigh3 = fma(vec4<f32>(w.w), high, keyHigh3);
      }
    }
  }
  if (lane < D8 * 8u) {
    put(run, firstKey, og * 4u, kv * D8 * 2u + dg, array(keyLow0, keyHigh0, valueLow0, valueHigh0));
    put(run, firstKey, og * 4u + 1u, kv * D8 * 2u + dg, array(keyLow1, keyHigh1, valueLow1, valueHigh1));
    put(run, firstKey, og * 4u + 2u, kv * D8 * 2u + dg, array(keyLow2, keyHigh2, valueLow2, valueHigh2));
    put(run, firstKey, og * 4u + 3u, kv * D8 * 2u + dg, array(keyLow3, keyHigh3, valueLow3, valueHigh3));
  }
}
