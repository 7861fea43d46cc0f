// partials[r, l] = the sums (e, e d) that lane l of logprobs.wgsl has, with d = x - top, e = exp(d) over the ids l,
// l + 256, ... in order. A workgroup has STRIPE of the 256 lanes: its threads find e and d of a panel of ids together,
// then one thread a lane adds them in order. The bits are those of logprobs.wgsl, however the lanes are cut.
// For draws also, with MASSES: masses[r, b, s] = the weights (as sample.wgsl's) of the ids of block b, 1024 ids, that
// stripe s has, without those that min-p drops; with BINS: bins[r, i] counts ids by top - x, 16 bins an octave; with
// WEIGHTS as well: bins[r, 256 + 2 i] and the next are the weights of bin i, low and high word.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride: u32,
  slices: u32,
  panels: u32,
  inverseTemperature: f32,
  minLog: f32,  // log(minP), hugely negative = off
}

override STRIPE: u32 = 8u;  // 8, 16 or 32 lanes
override MASSES: bool = false;
override BINS: bool = false;
override WEIGHTS: bool = false;

const LANES = 256u;
const DEPTH = 4u;  // ids that a thread takes of a panel, 256 apart: their loads are in flight together
const LIMIT = vec4<f32>(1.7e38);
const BIN_STRIDE = 776u;
const BIN_BASE = 1855;  // bin 1 begins at 2^-11, bin 255 at 30

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read> tops: array<u32>;  // [rows, slices], at most 256 slices
@group(0) @binding(3) var<storage, read_write> partials: array<vec2<f32>>;  // [rows, 256]
@group(0) @binding(4) var<storage, read_write> masses: array<vec2<u32>>;  // [rows, blocks, 256 / STRIPE]: low, high
@group(0) @binding(5) var<storage, read_write> bins: array<atomic<u32>>;  // [rows, 776]

var<workgroup> topKey: atomic<u32>;
var<workgroup> terms: array<vec2<f32>, 1024>;
var<workgroup> weights: array<vec2<u32>, 256>;
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> binLow: array<atomic<u32>, 256>;
var<workgroup> binHigh: array<atomic<u32>, 256>;

fn valueOf(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

// The sum of e in units of 2^-44, each rounded down: at most 2^44.
fn weightOf(e: vec4<f32>) -> vec2<u32> {
  let scaled = min(e, vec4<f32>(1.0)) * 1048576.0;
  let high = vec4<u32>(scaled);
  let low = vec4<u32>((scaled - vec4<f32>(high)) * 16777216.0) | (high << vec4<u32>(24u));
  let up = high >> vec4<u32>(8u);
  let first = add64(vec2<u32>(low.x, up.x), vec2<u32>(low.y, up.y));
  return add64(first, add64(vec2<u32>(low.z, up.z), vec2<u32>(low.w, up.w)));
}

// The logits of v, v + 256, v + 512, v + 768; past the vocabulary any.
fn load(base: u32, v: u32) -> vec4<f32> {
  let at = min(vec4<u32>(v) + vec4<u32>(0u, LANES, 2u * LANES, 3u * LANES), vec4<u32>(p.vocabulary - 1u));
  return vec4<f32>(logits[base + at.x], logits[base + at.y], logits[base + at.z], logits[base + at.w]);
}

fn count(distance: f32, e: f32, real: bool) {
  if (!real) {
    return;
  }
  let bin = u32(clamp(i32(bitcast<u32>(distance) >> 19u) - BIN_BASE, 0, 255));
  atomicAdd(&counts[bin], 1u);
  if (WEIGHTS) {
    let mass = weightOf(vec4<f32>(e, 0.0, 0.0, 0.0));
    let low = atomicAdd(&binLow[bin], mass.x);
    atomicAdd(&binHigh[bin], mass.y + select(0u, 1u, low + mass.x < low));
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  let base = row * p.stride;
  let groups = LANES / STRIPE;
  let group = lane / STRIPE;
  let own = lane % STRIPE;
  var v = group * DEPTH * LANES + wg.x * STRIPE + own;
  var raw = load(base, v);
  if (lane < p.slices) {
    atomicMax(&topKey, tops[row * p.slices + lane]);
  }
  workgroupBarrier();
  let top = valueOf(atomicLoad(&topKey));
  var sum = vec2<f32>(0.0);
  for (var panel = 0u; panel < p.panels; panel++) {
    let x = clamp(raw * p.inverseTemperature, -LIMIT, LIMIT);
    let real = vec4<u32>(v) + vec4<u32>(0u, LANES, 2u * LANES, 3u * LANES) < vec4<u32>(p.vocabulary);
    let d = select(vec4<f32>(0.0), x - top, real);
    let e = select(vec4<f32>(0.0), exp(d), real);
    let at = group * DEPTH * STRIPE + own;
    terms[at] = vec2<f32>(e.x, d.x);
    terms[at + STRIPE] = vec2<f32>(e.y, d.y);
    terms[at + 2u * STRIPE] = vec2<f32>(e.z, d.z);
    terms[at + 3u * STRIPE] = vec2<f32>(e.w, d.w);
    if (MASSES) {
      weights[lane] = weightOf(select(vec4<f32>(0.0), e, d >= vec4<f32>(p.minLog)));
    }
    if (BINS) {
      count(top - x.x, e.x, real.x);
      count(top - x.y, e.y, real.y);
      count(top - x.z, e.z, real.z);
      count(top - x.w, e.w, real.w);
    }
    v += groups * DEPTH * LANES;
    raw = load(base, v);
    workgroupBarrier();
    if (lane < STRIPE) {
      // The terms past the vocabulary are 0 and change no sum: none is -0.
      for (var i = lane; i < 1024u; i += 8u * STRIPE) {
        let t0 = terms[i];
        let t1 = terms[i + STRIPE];
        let t2 = terms[i + 2u * STRIPE];
        let t3 = terms[i + 3u * STRIPE];
        let t4 = terms[i + 4u * STRIPE];
        let t5 = terms[i + 5u * STRIPE];
        let t6 = terms[i + 6u * STRIPE];
        let t7 = terms[i + 7u * STRIPE];
        sum = vec2<f32>(sum.x + t0.x, fma(t0.x, t0.y, sum.y));
        sum = vec2<f32>(sum.x + t1.x, fma(t1.x, t1.y, sum.y));
        sum = vec2<f32>(sum.x + t2.x, fma(t2.x, t2.y, sum.y));
        sum = vec2<f32>(sum.x + t3.x, fma(t3.x, t3.y, sum.y));
        sum = vec2<f32>(sum.x + t4.x, fma(t4.x, t4.y, sum.y));
        sum = vec2<f32>(sum.x + t5.x, fma(t5.x, t5.y, sum.y));
        sum = vec2<f32>(sum.x + t6.x, fma(t6.x, t6.y, sum.y));
        sum = vec2<f32>(sum.x + t7.x, fma(t7.x, t7.y, sum.y));
      }
    } else if (MASSES && lane >= 64u && lane < 64u + groups) {
      let g = lane - 64u;
      var all = vec2<u32>(0u);
      for (var i = 0u; i < STRIPE; i++) {
        all = add64(all, weights[g * STRIPE + i]);
      }
      masses[((row * p.panels + panel) * groups + g) * groups + wg.x] = all;
    }
    workgroupBarrier();
  }
  if (lane < STRIPE) {
    partials[row * LANES + wg.x * STRIPE + lane] = sum;
  }
  if (BINS) {
    let counted = atomicLoad(&counts[lane]);
    if (counted > 0u) {
      atomicAdd(&bins[row * BIN_STRIDE + lane], counted);
    }
    if (WEIGHTS && counted > 0u) {
      let at = row * BIN_STRIDE + LANES + 2u * lane;
      let own = atomicLoad(&binLow[lane]);
      let low = atomicAdd(&bins[at], own);
      atomicAdd(&bins[at + 1u], atomicLoad(&binHigh[lane]) + select(0u, 1u, low + own < low));
    }
  }
}
