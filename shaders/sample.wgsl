// Draws one id a row from softmax(logits / T) after top-k, top-p and min-p, in that order, as transformers filters:
// top-k keeps all that tie with the k-th; top-p drops from the small end while the cumulative probability is <= 1 - p,
// higher ids of equal ones first; min-p drops what is less likely than minP times the largest. Then the inverse CDF in
// id order at u = Philox4x32-10([position, member, group, step], [seed, 'Samp']).word0 >> 8, times 2^-24.
// Nothing is sorted: thresholds are found digit by digit over keys that order as the logits do. A weight exp(x - top)
// is an integer of 2^-44, so every sum of weights is exact, and counts and masses may come from integer atomics: the
// result depends on the row and its key alone. A row with a NaN or an Infinity gets id 0xffffffff and log-prob NaN.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride: u32,
  rowOffset: u32,
  inverseTemperature: f32,
  greedy: u32,
  topK: u32,  // 0 = off
  dropHigh: u32,  // 1 - topP = (dropHigh * 2^32 + dropLow) * 2^-64; 0 = off
  dropLow: u32,
  minLog: f32,  // log(minP), hugely negative = off
}

override DISTRIBUTION: bool = false;

const LANES = 256u;
const LIMIT = 1.7e38;
const BAD = 0xffffffffu;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read> keys: array<vec4<u32>>;  // [rows, 2]: seed step group member; position live
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;  // [all rows] from rowOffset
@group(0) @binding(4) var<storage, read_write> logprobs: array<f32>;  // [all rows] from rowOffset: truncated, nats
@group(0) @binding(5) var<storage, read_write> distribution: array<f32>;  // [rows, vocabulary], for DISTRIBUTION

var<workgroup> topKey: atomic<u32>;
var<workgroup> lowestId: atomic<u32>;  // complement of the lowest id with the top key
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> massLow: array<atomic<u32>, 256>;
var<workgroup> massHigh: array<atomic<u32>, 256>;
var<workgroup> chosen: array<u32, 2>;  // what lane 0 found, for all lanes

// A u32 in the order of logits / T; 0 beyond the vocabulary, BAD for a logit that is not finite (found on its bits).
fn keyAt(base: u32, v: u32) -> u32 {
  if (v >= p.vocabulary) {
    return 0u;
  }
  let logit = logits[base + v];
  let finite = (bitcast<u32>(logit) & 0x7f800000u) != 0x7f800000u;
  let raw = bitcast<u32>(clamp(logit * p.inverseTemperature, -LIMIT, LIMIT));
  let bits = select(raw, 0u, (raw << 1u) == 0u);  // -0 equals 0
  return select(BAD, select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u), finite);
}

fn valueOf(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

// 64-bit integers: x the low word, y the high one.
fn mulHigh(a: u32, b: u32) -> u32 {
  let cross = (a >> 16u) * (b & 0xffffu) + (((a & 0xffffu) * (b & 0xffffu)) >> 16u);
  let middle = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
  return (a >> 16u) * (b >> 16u) + (cross >> 16u) + (middle >> 16u);
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn subtract64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn times64(a: vec2<u32>, n: u32) -> vec2<u32> {
  return vec2<u32>(a.x * n, mulHigh(a.x, n) + a.y * n);
}

// floor(a * n / 2^32) for a below 2^64: the upper 64 of 96 bits.
fn timesFraction(a: vec2<u32>, n: u32) -> vec2<u32> {
  return add64(vec2<u32>(mulHigh(a.x, n), 0u), vec2<u32>(a.y * n, mulHigh(a.y, n)));
}

// floor(a * b / 2^64)
fn fractionOf(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let lower = timesFraction(a, b.x);
  let carry = select(0u, 1u, lower.x + a.x * b.y < lower.x);
  return add64(timesFraction(a, b.y), add64(vec2<u32>(lower.y, 0u), vec2<u32>(carry, 0u)));
}

// exp(x - top) in units of 2^-44, rounded down: at most 2^44.
fn weight(key: u32, top: f32) -> vec2<u32> {
  let scaled = min(exp(valueOf(key) - top), 1.0) * 1048576.0;
  let high = u32(scaled);
  let low = u32((scaled - f32(high)) * 16777216.0);
  return vec2<u32>((high << 24u) | low, high >> 8u);
}

fn draw(row: u32) -> u32 {
  let who = keys[row * 2u];
  var c = vec4<u32>(keys[row * 2u + 1u].x, who.w, who.z, who.y);
  var k = vec2<u32>(who.x, 0x53616d70u);
  for (var round = 0u; round < 10u; round++) {
    let high = vec2<u32>(mulHigh(0xd2511f53u, c.x), mulHigh(0xcd9e8d57u, c.z));
    c = vec4<u32>(high.y ^ c.y ^ k.x, 0xcd9e8d57u * c.z, high.x ^ c.w ^ k.y, 0xd2511f53u * c.x);
    k = k + vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c.x >> 8u;
}

fn massOf(bin: u32) -> vec2<u32> {
  return vec2<u32>(atomicLoad(&massLow[bin]), atomicLoad(&massHigh[bin]));
}

fn setBin(bin: u32, count: u32, mass: vec2<u32>) {
  atomicStore(&counts[bin], count);
  atomicStore(&massLow[bin], mass.x);
  atomicStore(&massHigh[bin], mass.y);
}

// The smallest key that a filter keeps among the keys >= lowest, and how many of the ids that have it (the lower ids).
// counting (top-k): ids weigh 1, and all but topK may be dropped; else (top-p) by their weights. Ids are dropped from
// the small end while the dropped mass stays <= drop; the edge is found digit by digit, eight bits at a time, from the
// mass of the keys that share the digits found so far. Lane 0 alone follows the sums.
fn filterEdge(base: u32, lane: u32, lowest: u32, top: f32, counting: bool) -> vec2<u32> {
  var known = 0u;
  var drop = vec2<u32>(p.vocabulary - p.topK, 0u);
  var below = vec2<u32>(0u);
  var tied = 0u;
  for (var digit = 0u; digit < 4u; digit++) {
    let shift = 24u - digit * 8u;
    let mask = ~(0xffffffffu >> (digit * 8u));
    setBin(lane, 0u, vec2<u32>(0u));
    workgroupBarrier();
    for (var v = lane; v < p.vocabulary; v += LANES) {
      let key = keyAt(base, v);
      if (key >= lowest && (key & mask) == known) {
        let bin = (key >> shift) & 255u;
        let mass = select(weight(key, top), vec2<u32>(1u, 0u), counting);
        atomicAdd(&counts[bin], 1u);
        let before = atomicAdd(&massLow[bin], mass.x);
        atomicAdd(&massHigh[bin], mass.y + select(0u, 1u, before + mass.x < before));
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      if (digit == 0u && !counting) {
        var total = vec2<u32>(0u);
        for (var i = 0u; i < LANES; i++) {
          total = add64(total, massOf(i));
        }
        drop = fractionOf(total, vec2<u32>(p.dropLow, p.dropHigh));
      }
      var bin = 0u;
      for (var i = 0u; i < 255u; i++) {
        let next = add64(below, massOf(bin));
        if (less64(drop, next)) {
          break;
        }
        below = next;
        bin += 1u;
      }
      chosen[0] = known | (bin << shift);
      tied = atomicLoad(&counts[bin]);
    }
    workgroupBarrier();
    known = chosen[0];
  }
  if (counting) {
    return vec2<u32>(known, 0xffffffffu);
  }
  // Of the ids that tie, as many go as fit what may still be dropped; never all, because below + all > drop.
  let room = subtract64(drop, below);
  let each = weight(known, top);
  var gone = 0u;
  for (var bit = 0u; bit < 24u; bit++) {
    let next = gone + (0x800000u >> bit);
    if (next < tied && !less64(room, times64(each, next))) {
      gone = next;
    }
  }
  return vec2<u32>(known, tied - gone);  // the second is right in lane 0
}

// What key weighs in the draw; for the edge key itself if it is among the ids kept of those that tie.
fn kept(key: u32, edge: u32, top: f32) -> vec2<u32> {
  if (key < edge || valueOf(key) - top < p.minLog) {
    return vec2<u32>(0u);
  }
  return weight(key, top);
}

// Finds the id at u in id order: the vocabulary in 256 pieces, then the piece in 256, then its ids one by one.
fn pick(base: u32, lane: u32, row: u32, edge: u32, ties: u32, top: f32, good: bool) {
  var start = 0u;
  var end = p.vocabulary;
  var left = ties;  // of the ids that tie on the edge, those not yet passed (lane 0)
  var target_ = vec2<u32>(0u);
  var total = vec2<u32>(0u);
  let each = kept(edge, edge, top);
  for (var level = 0u; level < 2u; level++) {
    let piece = (end - start + LANES - 1u) / LANES;
    var mass = vec2<u32>(0u);
    var tied = 0u;
    for (var i = 0u; i < piece; i++) {
      let v = start + lane * piece + i;
      let key = select(0u, keyAt(base, v), v < end);
      if (key == edge) {
        tied += 1u;
      } else if (key > edge) {
        mass = add64(mass, kept(key, edge, top));
      }
    }
    setBin(lane, tied, mass);
    workgroupBarrier();
    if (lane == 0u) {
      var rest = left;
      var sum = vec2<u32>(0u);
      for (var i = 0u; i < LANES; i++) {
        let here = min(atomicLoad(&counts[i]), rest);
        rest -= here;
        let all = add64(massOf(i), times64(each, here));
        setBin(i, here, all);
        sum = add64(sum, all);
      }
      if (level == 0u) {
        total = sum;
        target_ = timesFraction(sum, draw(p.rowOffset + row) << 8u);
      }
      var at = 0u;
      for (var i = 0u; i < 255u; i++) {
        let here = massOf(at);
        if (less64(target_, here)) {
          break;
        }
        target_ = subtract64(target_, here);
        left -= atomicLoad(&counts[at]);
        at += 1u;
      }
      chosen[0] = min(end, start + at * piece);
      chosen[1] = min(end, start + (at + 1u) * piece);
    }
    workgroupBarrier();
    start = chosen[0];
    end = chosen[1];
  }
  if (lane != 0u) {
    return;
  }
  var id = start;
  for (var v = start; v < end; v++) {
    let key = keyAt(base, v);
    var mass = kept(key, edge, top);
    if (key == edge) {
      mass = select(vec2<u32>(0u), mass, left > 0u);
      left -= min(left, 1u);
    }
    id = v;
    if (less64(target_, mass)) {
      break;
    }
    target_ = subtract64(target_, mass);
  }
  let sum = fma(f32(total.y), 0x1p-12, f32(total.x) * 0x1p-44);
  ids[p.rowOffset + row] = select(0xffffffffu, id, good);
  logprobs[p.rowOffset + row] = (valueOf(keyAt(base, id)) - top) - log(sum);
  if (!good) {
    logprobs[p.rowOffset + row] = bitcast<f32>(keyAt(base, 0u) | 0x7fc00001u);
  }
  if (DISTRIBUTION) {
    left = ties;
    for (var v = 0u; v < p.vocabulary; v++) {
      let key = keyAt(base, v);
      var there = key >= edge && valueOf(key) - top >= p.minLog;
      if (key == edge) {
        there = there && left > 0u;
        left -= min(left, 1u);
      }
      distribution[row * p.vocabulary + v] = select(0.0, exp(valueOf(key) - top) / sum, there);
    }
  }
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row = wg.y * groups.x + wg.x;
  if (row >= p.rows) {
    return;
  }
  if (keys[(p.rowOffset + row) * 2u + 1u].y == 0u) {
    return;
  }
  let base = row * p.stride;
  var best = 0u;
  for (var v = lane; v < p.vocabulary; v += LANES * 4u) {
    let low = max(keyAt(base, v), keyAt(base, v + LANES));
    let high = max(keyAt(base, v + LANES * 2u), keyAt(base, v + LANES * 3u));
    best = max(best, max(low, high));
  }
  atomicMax(&topKey, best);
  workgroupBarrier();
  let found = atomicLoad(&topKey);
  let top = valueOf(found);
  let good = found != BAD;
  if (p.greedy != 0u) {
    for (var v = lane; v < p.vocabulary; v += LANES) {
      if (keyAt(base, v) == found) {
        atomicMax(&lowestId, ~v);
        break;
      }
    }
    workgroupBarrier();
    let id = ~atomicLoad(&lowestId);
    if (lane == 0u) {
      ids[p.rowOffset + row] = select(0xffffffffu, id, good);
      logprobs[p.rowOffset + row] = select(0.0, bitcast<f32>(found & 0x7fffffffu), !good);
    }
    if (DISTRIBUTION) {
      for (var v = lane; v < p.vocabulary; v += LANES) {
        distribution[row * p.vocabulary + v] = select(0.0, 1.0, v == id);
      }
    }
    return;
  }
  // The edge so far, and how many ids on it stay (known to lane 0).
  var edge = vec2<u32>(1u, 0xffffffffu);
  for (var filter_ = 0u; filter_ < 2u; filter_++) {
    let counting = filter_ == 0u;
    if (select((p.dropHigh | p.dropLow) != 0u, p.topK > 0u && p.topK < p.vocabulary, counting)) {
      edge = filterEdge(base, lane, edge.x, top, counting);
    }
  }
  pick(base, lane, row, edge.x, edge.y, top, good);
}
