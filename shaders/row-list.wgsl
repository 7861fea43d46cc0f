// list[r, ..] = (key, id) of the ids among which a draw finds what top-k or top-p keep; bins[r, 768 ..] = how many they
// are, whether only the edge is listed, and the masses that lie beyond the last bin listed and in all.
// From the row's bins follows the first bin past which nothing is kept: for top-k by counts, else for top-p by masses.
// Listed are the ids up to it; where those are more than `longest` and top-p alone cuts, the ids of that bin only, and
// masses[r, b] = the weights of the ids of block b, 1024 ids, in the bins before, less what min-p drops. sample-wide.wgsl filters exactly.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride: u32,
  slices: u32,
  inverseTemperature: f32,
  topK: u32,  // 0 = off
  dropHigh: u32,  // 1 - topP = (dropHigh * 2^32 + dropLow) * 2^-64
  dropLow: u32,
  capacity: u32,
  longest: u32,
  massStride: u32,
  minLog: f32,  // log(minP), hugely negative = off
}

override SLICE: u32 = 5120u;  // a multiple of 1024, at most 8192

const LANES = 256u;
const LIMIT = 1.7e38;
const BAD = 0xffffffffu;
const BIN_STRIDE = 776u;
const BIN_BASE = 1855u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read> tops: array<u32>;  // [rows, slices]
@group(0) @binding(3) var<storage, read_write> bins: array<atomic<u32>>;  // [rows, 776]
@group(0) @binding(4) var<storage, read_write> list: array<vec2<u32>>;  // [rows, capacity]: key, id
@group(0) @binding(5) var<storage, read_write> masses: array<vec2<u32>>;  // [rows, massStride]: low, high

struct Tally {
  count: u32,
  mass: vec2<u32>,
}

var<workgroup> topKey: atomic<u32>;
var<workgroup> counts: array<u32, LANES>;
var<workgroup> binMasses: array<vec2<u32>, LANES>;
var<workgroup> sixteenths: array<Tally, 16>;  // sums of 16 bins each
var<workgroup> beyond: atomic<u32>;  // 255 - the last bin to list
var<workgroup> upTo: array<u32, LANES>;  // ids in the bins up to each
var<workgroup> flags: array<atomic<u32>, SLICE / 32u>;
var<workgroup> found: array<atomic<u32>, 16>;  // ids listed of each 16 words of flags
var<workgroup> blockLow: array<atomic<u32>, 8>;
var<workgroup> blockHigh: array<atomic<u32>, 8>;
var<workgroup> start: u32;

fn valueOf(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

fn scaled(at: u32) -> f32 {
  return clamp(logits[at] * p.inverseTemperature, -LIMIT, LIMIT);
}

// The key of sample.wgsl: of -0 it is that of 0.
fn keyAt(at: u32) -> u32 {
  let finite = (bitcast<u32>(logits[at]) & 0x7f800000u) != 0x7f800000u;
  let raw = bitcast<u32>(scaled(at));
  let bits = select(raw, 0u, (raw << 1u) == 0u);
  return select(BAD, select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u), finite);
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

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.y < b.y || (a.y == b.y && a.x < b.x);
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

// exp(d) in units of 2^-44, rounded down: at most 2^44.
fn weight(d: f32) -> vec2<u32> {
  let units = min(exp(d), 1.0) * 1048576.0;
  let high = u32(units);
  let low = u32((units - f32(high)) * 16777216.0);
  return vec2<u32>((high << 24u) | low, high >> 8u);
}

fn mark(at: u32, hit: bool) {
  if (hit) {
    atomicOr(&flags[at / 32u], 1u << (at % 32u));
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  let base = row * p.stride;
  let first = wg.x * SLICE;
  let ownBins = row * BIN_STRIDE;
  if (lane < p.slices) {
    atomicMax(&topKey, tops[row * p.slices + lane]);
  }
  counts[lane] = atomicLoad(&bins[ownBins + lane]);
  let pair = ownBins + LANES + 2u * lane;
  binMasses[lane] = vec2<u32>(atomicLoad(&bins[pair]), atomicLoad(&bins[pair + 1u]));
  workgroupBarrier();
  if (lane < 16u) {
    var tally = Tally(0u, vec2<u32>(0u));
    for (var i = lane * 16u; i < lane * 16u + 16u; i++) {
      tally = Tally(tally.count + counts[i], add64(tally.mass, binMasses[i]));
    }
    sixteenths[lane] = tally;
  }
  workgroupBarrier();
  var above = 0u;
  var below = vec2<u32>(0u);
  var total = vec2<u32>(0u);
  for (var i = 0u; i < 16u; i++) {
    let part = sixteenths[i];
    let at = (lane & 0xf0u) + i;
    above += select(0u, part.count, i < lane / 16u) + select(0u, counts[at], at <= lane);
    below = add64(below, select(vec2<u32>(0u), part.mass, i > lane / 16u));
    below = add64(below, select(vec2<u32>(0u), binMasses[at], at > lane));
    total = add64(total, part.mass);
  }
  upTo[lane] = above;
  let drop = fractionOf(total, vec2<u32>(p.dropLow, p.dropHigh));
  if (lane == 255u || select(!less64(drop, below), above >= p.topK, p.topK > 0u)) {
    atomicMax(&beyond, 255u - lane);
  }
  workgroupBarrier();
  let top = valueOf(atomicLoad(&topKey));
  let last = 255u - atomicLoad(&beyond);
  let edgeOnly = p.topK == 0u && upTo[last] > p.longest;
  if (wg.x == 0u && lane == last) {
    atomicStore(&bins[ownBins + 769u], u32(edgeOnly));
    atomicStore(&bins[ownBins + 770u], below.x);
    atomicStore(&bins[ownBins + 771u], below.y);
    atomicStore(&bins[ownBins + 772u], total.x);
    atomicStore(&bins[ownBins + 773u], total.y);
  }
  // Distances order as their bits. Four loads are in flight together, of one block.
  let past = select((last + 1u + BIN_BASE) << 19u, BAD, last == 255u);
  let edge = select(0u, (last + BIN_BASE) << 19u, edgeOnly && last > 0u);
  for (var block = 0u; block < SLICE / 1024u; block++) {
    let at = vec4<u32>(block * 1024u + lane) + vec4<u32>(0u, LANES, 2u * LANES, 3u * LANES);
    let v = base + min(vec4<u32>(first) + at, vec4<u32>(p.vocabulary - 1u));
    let x = vec4<f32>(scaled(v.x), scaled(v.y), scaled(v.z), scaled(v.w));
    let distance = bitcast<vec4<u32>>(top - x);
    let real = vec4<u32>(first) + at < vec4<u32>(p.vocabulary);
    let hit = real & (distance < vec4<u32>(past)) & (distance >= vec4<u32>(edge));
    mark(at.x, hit.x);
    mark(at.y, hit.y);
    mark(at.z, hit.z);
    mark(at.w, hit.w);
    if (edge > 0u) {
      let sure = real & (distance < vec4<u32>(edge)) & (x - top >= vec4<f32>(p.minLog));
      var mass = select(vec2<u32>(0u), weight(x.x - top), sure.x);
      mass = add64(mass, select(vec2<u32>(0u), weight(x.y - top), sure.y));
      mass = add64(mass, select(vec2<u32>(0u), weight(x.z - top), sure.z));
      mass = add64(mass, select(vec2<u32>(0u), weight(x.w - top), sure.w));
      let low = atomicAdd(&blockLow[block], mass.x);
      atomicAdd(&blockHigh[block], mass.y + select(0u, 1u, low + mass.x < low));
    }
  }
  workgroupBarrier();
  let block = first / 1024u + lane;
  if (edgeOnly && lane < SLICE / 1024u && block * 1024u < p.vocabulary) {
    masses[row * p.massStride + block] = vec2<u32>(atomicLoad(&blockLow[lane]), atomicLoad(&blockHigh[lane]));
  }
  var bits = 0u;
  if (lane < SLICE / 32u) {
    bits = atomicLoad(&flags[lane]);
    atomicAdd(&found[lane / 16u], countOneBits(bits));
  }
  workgroupBarrier();
  if (lane == 0u) {
    var all = 0u;
    for (var i = 0u; i < 16u; i++) {
      all += atomicLoad(&found[i]);
    }
    if (all > 0u) {
      start = atomicAdd(&bins[ownBins + 768u], all);
    }
  }
  workgroupBarrier();
  if (bits == 0u) {
    return;
  }
  var at = start;
  for (var i = 0u; i < 16u; i++) {
    let word = (lane & 0xf0u) + i;
    at += select(0u, atomicLoad(&found[i]), i < lane / 16u);
    at += select(0u, countOneBits(atomicLoad(&flags[min(word, SLICE / 32u - 1u)])), word < lane);
  }
  for (var i = 0u; i < 32u && bits != 0u; i++) {
    let bit = firstTrailingBit(bits);
    if (at < p.capacity) {
      let v = first + lane * 32u + bit;
      list[row * p.capacity + at] = vec2<u32>(keyAt(base + v), v);
    }
    bits &= bits - 1u;
    at += 1u;
  }
}
