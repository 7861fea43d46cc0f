// tops[r, s] = the largest key of slice s, SLICE ids of row r; and row r's bins set to 0. The first of the dispatches
// by which several workgroups share the vocabulary of a row: logprobs-wide.wgsl and sample-wide.wgsl are the last.
// A key is a u32 in the order of x = logits / T, 0xffffffff for a logit that is not finite. A maximum has no order.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride: u32,
  slices: u32,
  inverseTemperature: f32,
}

override SLICE: u32 = 5120u;  // a multiple of 256

const LANES = 256u;
const LIMIT = 1.7e38;
const BAD = 0xffffffffu;
const BIN_STRIDE = 776u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read_write> tops: array<u32>;  // [rows, slices]
@group(0) @binding(3) var<storage, read_write> bins: array<u32>;  // [rows, 776]

var<workgroup> topKey: atomic<u32>;

fn keyAt(base: u32, v: u32) -> u32 {
  if (v >= p.vocabulary) {
    return 0u;
  }
  let logit = logits[base + v];
  let finite = (bitcast<u32>(logit) & 0x7f800000u) != 0x7f800000u;
  let bits = bitcast<u32>(clamp(logit * p.inverseTemperature, -LIMIT, LIMIT));
  return select(BAD, select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u), finite);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  let base = row * p.stride;
  let first = wg.x * SLICE + lane;
  var best = 0u;
  for (var i = 0u; i < SLICE / LANES; i++) {
    best = max(best, keyAt(base, first + i * LANES));
  }
  atomicMax(&topKey, best);
  if (wg.x == 0u) {
    for (var i = lane; i < BIN_STRIDE; i += LANES) {
      bins[row * BIN_STRIDE + i] = 0u;
    }
  }
  workgroupBarrier();
  if (lane == 0u) {
    tops[row * p.slices + wg.x] = atomicLoad(&topKey);
  }
}
