// The draw of sample.wgsl, bit for bit, for large vocabularies on GPUs: see there. One workgroup a row, after several
// have gone over it in row-tops, row-sums and row-list. Without top-k and top-p it finds the drawn id by its block's
// mass; with them it filters the row's list, in whatever order it is, by digits of key and id, and draws from it, or by
// blocks again where only the edge is listed. A list longer than its capacity stands for the whole row.
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
  slices: u32,
  sliceIds: u32,
  blocks: u32,
  capacity: u32,
  stripes: u32,
}


const LANES = 256u;
const DEPTH = 4u;
const LIMIT = 1.7e38;
const BAD = 0xffffffffu;
const BIN_STRIDE = 776u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read> keys: array<vec4<u32>>;  // [rows, 2]: seed step group member; position live
@group(0) @binding(3) var<storage, read> tops: array<u32>;  // [rows, slices]
@group(0) @binding(4) var<storage, read> masses: array<vec2<u32>>;  // [rows, blocks, stripes], at most 256 blocks
@group(0) @binding(5) var<storage, read> bins: array<u32>;  // [rows, 776]: see row-list.wgsl
@group(0) @binding(6) var<storage, read> list: array<vec2<u32>>;  // [rows, capacity]: key, id
@group(0) @binding(7) var<storage, read_write> ids: array<u32>;  // [all rows] from rowOffset
@group(0) @binding(8) var<storage, read_write> logprobs: array<f32>;  // [all rows] from rowOffset: truncated, nats

var<workgroup> topKey: atomic<u32>;
var<workgroup> lowestId: atomic<u32>;  // complement of the lowest id with the top key
var<workgroup> massLow: array<atomic<u32>, 256>;
var<workgroup> massHigh: array<atomic<u32>, 256>;
var<workgroup> sixteenths: array<vec2<u32>, 16>;  // sums of 16 bins each
var<workgroup> chosen: u32;  // the bin found,
var<workgroup> passed: vec2<u32>;  // the mass before it
var<workgroup> idFound: u32;
var<workgroup> listKeys: array<u32, 256>;
var<workgroup> listIds: array<u32, 256>;

// A u32 in the order of logits / T; 0 beyond the vocabulary, BAD for a logit that is not finite (found on its bits).
fn keyAt(base: u32, v: u32) -> u32 {
  if (v >= p.vocabulary) {
    return 0u;
  }
  let logit = logits[base + v];
  let finite = (bitcast<u32>(logit) & 0x7f800000u) != 0x7f800000u;
  let bits = bitcast<u32>(clamp(logit * p.inverseTemperature, -LIMIT, LIMIT));
  return select(BAD, noZeroSign(select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u)), finite);
}

// The key of -0 as that of 0, which it equals.
fn noZeroSign(key: u32) -> u32 {
  return select(key, 0x80000000u, key == 0x7fffffffu);
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

fn setMass(bin: u32, mass: vec2<u32>) {
  atomicStore(&massLow[bin], mass.x);
  atomicStore(&massHigh[bin], mass.y);
}

fn addMass(bin: u32, mass: vec2<u32>) {
  if ((mass.x | mass.y) != 0u) {
    let low = atomicAdd(&massLow[bin], mass.x);
    atomicAdd(&massHigh[bin], mass.y + select(0u, 1u, low + mass.x < low));
  }
}

// Entry i of the row's list, or of the whole row: key and id.
fn entry(whole: bool, row: u32, i: u32) -> vec2<u32> {
  if (whole) {
    return vec2<u32>(keyAt(row * p.stride, i), i);
  }
  return list[row * p.capacity + i];
}

// What key weighs in the draw; of the ids that tie on the edge, those after lastTie nothing.
fn kept(key: u32, id: u32, edge: u32, lastTie: u32, top: f32) -> vec2<u32> {
  if (key < edge || (key == edge && id > lastTie) || valueOf(key) - top < p.minLog) {
    return vec2<u32>(0u);
  }
  return weight(key, top);
}

// How many of the `tied` ids on the edge, of weight `each`, go: as many as fit into `room`, never all.
fn goneOf(tied: u32, each: vec2<u32>, room: vec2<u32>) -> u32 {
  var gone = 0u;
  for (var bit = 0u; bit < 24u; bit++) {
    let next = gone + (0x800000u >> bit);
    if (next < tied && !less64(room, times64(each, next))) {
      gone = next;
    }
  }
  return gone;
}

// Each step sorts masses into 256 bins and finds the bin in which the sum so far passes a goal.
const COUNTS = 0u;  // 4 steps: the edge of top-k by digits of the key
const MASSES = 4u;  // 4 steps: the edge of top-p
const TIES = 8u;  // 3 steps: the last id kept of those on the edge, by digits of the id
const IDS = 11u;  // 3 steps: the id drawn; or 2: its block of 1024 ids, its run of DEPTH ids and the id
const STEPS = 14u;

fn isTaken(step: u32, byCount: bool, byMass: bool, byBlocks: bool) -> bool {
  if (step < MASSES) {
    return byCount;
  }
  return select(byMass, step < STEPS - 1u || !byBlocks, step >= IDS);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  if (keys[(p.rowOffset + row) * 2u + 1u].y == 0u) {
    return;
  }
  let base = row * p.stride;
  if (lane < p.slices) {
    atomicMax(&topKey, tops[row * p.slices + lane]);
  }
  workgroupBarrier();
  let found = noZeroSign(atomicLoad(&topKey));
  let top = valueOf(found);
  if (p.greedy != 0u) {
    for (var slice = 0u; slice < p.slices; slice++) {
      for (var i = lane; i < p.sliceIds && noZeroSign(tops[row * p.slices + slice]) == found; i += LANES) {
        if (keyAt(base, slice * p.sliceIds + i) == found) {
          atomicMax(&lowestId, ~(slice * p.sliceIds + i));
          break;
        }
      }
    }
    workgroupBarrier();
    if (lane == 0u) {
      ids[p.rowOffset + row] = select(BAD, ~atomicLoad(&lowestId), found != BAD);
      logprobs[p.rowOffset + row] = select(0.0, bitcast<f32>(found & 0x7fffffffu), found == BAD);
    }
    return;
  }
  let byCount = p.topK > 0u && p.topK < p.vocabulary;
  let byMass = (p.dropHigh | p.dropLow) != 0u;
  let listed = byCount || byMass;
  let ownBins = row * BIN_STRIDE;
  let length = bins[ownBins + 768u];
  let whole = listed && (length > p.capacity || (byCount && length < p.topK));
  let edgeOnly = listed && !byCount && !whole && bins[ownBins + 769u] == 1u;
  let byBlocks = !listed || edgeOnly;
  let direct = listed && !whole && !edgeOnly && length <= LANES;
  var goal = vec2<u32>(0u);
  var sum = vec2<u32>(0u);
  var beyond = vec2<u32>(0u);  // the mass of the ids past the list
  if (!byCount && !whole) {
    beyond = vec2<u32>(bins[ownBins + 770u], bins[ownBins + 771u]);
  }
  var edge = 1u;
  var lastTie = BAD;
  var known = 0u;  // the digits found
  for (var step = select(0u, STEPS, direct); step < STEPS; step++) {
    if (!isTaken(step, byCount, byMass, byBlocks)) {
      continue;
    }
    var own = vec2<u32>(0u);
    let first = (known * LANES + lane) * DEPTH;
    if (byBlocks && step == IDS && lane * LANES * DEPTH < p.vocabulary) {
      let stripes = select(p.stripes, 1u, edgeOnly);
      let at = row * p.blocks * p.stripes + lane * stripes;
      for (var i = 0u; i < stripes; i += 4u) {
        let four = array<vec2<u32>, 4>(
          masses[at + i],
          masses[at + min(i + 1u, stripes - 1u)],
          masses[at + min(i + 2u, stripes - 1u)],
          masses[at + min(i + 3u, stripes - 1u)],
        );
        for (var k = 0u; k < 4u; k++) {
          own = add64(own, select(vec2<u32>(0u), four[k], i + k < stripes));
        }
      }
    } else if (byBlocks && step > IDS) {
      for (var i = 0u; i < DEPTH; i++) {
        own = add64(own, kept(keyAt(base, first + i), first + i, edge, lastTie, top));
      }
    }
    setMass(lane, own);
    workgroupBarrier();
    let digit = select((step - TIES) % 3u, (step - COUNTS) & 3u, step < TIES);
    let shift = select(select(16u, 24u, step < TIES) - digit * 8u, 10u, byBlocks && step == IDS);
    let count = select(select(length, p.vocabulary, whole), 0u, !listed || (byBlocks && step > IDS));
    var pending = vec2<u32>(0u);  // what the lane has for `bin`: neighbours in a list often share a digit
    var bin = 0u;
    for (var i = lane; i < count; i += 4u * LANES) {
      // Four loads are in flight together.
      let entries = array<vec2<u32>, 4>(
        entry(whole, row, i),
        entry(whole, row, min(i + LANES, count - 1u)),
        entry(whole, row, min(i + 2u * LANES, count - 1u)),
        entry(whole, row, min(i + 3u * LANES, count - 1u)),
      );
      for (var k = 0u; k < 4u; k++) {
        let it = entries[k];
        let digits = select(it.y, it.x, step < TIES) >> shift;
        if ((digits >> 8u) != known || i + k * LANES >= count) {
          continue;
        }
        var mass = vec2<u32>(select(u32(it.x >= edge), u32(it.x == edge), step >= TIES), 0u);
        if (step >= IDS) {
          mass = kept(it.x, it.y, edge, lastTie, top);
        } else if (step >= MASSES && step < TIES) {
          mass = select(vec2<u32>(0u), weight(it.x, top), it.x >= edge);
        }
        if ((mass.x | mass.y) != 0u) {
          if ((digits & 255u) != bin) {
            addMass(bin, pending);
            bin = digits & 255u;
            pending = vec2<u32>(0u);
          }
          pending = add64(pending, mass);
        }
      }
    }
    addMass(bin, pending);
    workgroupBarrier();
    var all = vec2<u32>(0u);
    if (lane < 16u) {
      for (var i = 0u; i < 16u; i++) {
        all = add64(all, massOf(lane * 16u + i));
      }
      sixteenths[lane] = all;
    }
    workgroupBarrier();
    all = vec2<u32>(0u);
    var before = vec2<u32>(0u);
    for (var i = 0u; i < 16u; i++) {
      all = add64(all, sixteenths[i]);
      before = add64(before, select(vec2<u32>(0u), sixteenths[i], i < lane / 16u));
      before = add64(before, select(vec2<u32>(0u), massOf((lane & 0xf0u) + i), i < lane % 16u));
    }
    if (step == IDS) {
      sum = all;
      goal = timesFraction(sum, draw(p.rowOffset + row) << 8u);
    } else if (step == COUNTS) {
      // The ids past the list are not kept either way.
      goal = vec2<u32>(select(length, p.vocabulary, whole) - p.topK, 0u);
    } else if (step == MASSES) {
      let from_ = select(all, vec2<u32>(bins[ownBins + 772u], bins[ownBins + 773u]), !byCount && !whole);
      goal = subtract64(fractionOf(from_, vec2<u32>(p.dropLow, p.dropHigh)), beyond);
    } else if (step == TIES) {
      goal = vec2<u32>(all.x - goneOf(all.x, weight(edge, top), goal) - 1u, 0u);
    }
    if (!less64(goal, before) && less64(goal, add64(before, massOf(lane)))) {
      chosen = lane;
      passed = before;
    }
    workgroupBarrier();
    goal = subtract64(goal, passed);
    known = (known << 8u) | chosen;
    if (byBlocks && step > IDS && chosen == lane) {
      for (var i = 0u; i < DEPTH; i++) {
        idFound = first + i;
        own = kept(keyAt(base, first + i), first + i, edge, lastTie, top);
        if (less64(goal, own)) {
          break;
        }
        goal = subtract64(goal, own);
      }
    } else if (step == MASSES - 1u || step == TIES - 1u) {
      edge = known;
      known = 0u;
    } else if (step == IDS - 1u) {
      lastTie = known;
      known = 0u;
    } else if (step == STEPS - 1u && lane == 0u) {
      idFound = known;
    }
    workgroupBarrier();
  }
  if (direct) {
    // The same rules, told for each id by the ids below and above it.
    let own = select(vec2<u32>(0u), list[row * p.capacity + min(lane, length - 1u)], lane < length);
    listKeys[lane] = own.x;
    listIds[lane] = own.y;
    workgroupBarrier();
    var higher = 0u;
    for (var i = 0u; i < length; i++) {
      higher += u32(listKeys[i] > own.x);
    }
    let within = lane < length && (!byCount || higher < p.topK);
    let mass = select(vec2<u32>(0u), weight(own.x, top), within);
    setMass(lane, mass);
    workgroupBarrier();
    var least = beyond;  // the mass up to the id, from the small end, higher ids of equal ones first
    var all = beyond;
    for (var i = 0u; i < length; i++) {
      let other = massOf(i);
      all = add64(all, other);
      let under = listKeys[i] < own.x || (listKeys[i] == own.x && listIds[i] >= own.y);
      least = add64(least, select(vec2<u32>(0u), other, under));
    }
    let drop = fractionOf(all, vec2<u32>(p.dropLow, p.dropHigh));
    let stays = (!byMass || less64(drop, least)) && valueOf(own.x) - top >= p.minLog;
    workgroupBarrier();
    let last = select(vec2<u32>(0u), mass, stays);
    setMass(lane, last);
    workgroupBarrier();
    sum = vec2<u32>(0u);
    var before = vec2<u32>(0u);
    for (var i = 0u; i < length; i++) {
      let other = massOf(i);
      sum = add64(sum, other);
      before = add64(before, select(vec2<u32>(0u), other, listIds[i] < own.y));
    }
    goal = timesFraction(sum, draw(p.rowOffset + row) << 8u);
    if (!less64(goal, before) && less64(goal, add64(before, last))) {
      idFound = own.y;
    }
    workgroupBarrier();
  }
  if (lane != 0u) {
    return;
  }
  let kept_ = fma(f32(sum.y), 0x1p-12, f32(sum.x) * 0x1p-44);
  ids[p.rowOffset + row] = select(BAD, idFound, found != BAD);
  logprobs[p.rowOffset + row] = (valueOf(keyAt(base, idFound)) - top) - log(kept_);
  if (found == BAD) {
    logprobs[p.rowOffset + row] = bitcast<f32>(keyAt(base, 0u) | 0x7fc00001u);
  }
}
