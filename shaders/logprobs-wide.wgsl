// The stats of logprobs.wgsl, bit for bit, for large vocabularies on GPUs: see there. The last of three dispatches:
// row-tops.wgsl found the maxima of the row's slices, row-sums.wgsl the sums of its 256 lanes; they are added in order.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride: u32,
  rowOffset: u32,
  inverseTemperature: f32,
  slices: u32,
}

const LANES = 64u;
const PARTIALS = 256u;
const LIMIT = 1.7e38;
const BAD = 0xffffffffu;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read> targets: array<u32>;  // [all rows] from rowOffset
@group(0) @binding(3) var<storage, read> tops: array<u32>;  // [rows, slices], at most 256 slices
@group(0) @binding(4) var<storage, read> partials: array<vec2<f32>>;  // [rows, 256]
@group(0) @binding(5) var<storage, read_write> stats: array<vec4<f32>>;  // [all rows, 4] from rowOffset

var<workgroup> topKey: atomic<u32>;
var<workgroup> sums: array<vec2<f32>, PARTIALS>;

fn scaled(at: u32) -> f32 {
  return clamp(logits[at] * p.inverseTemperature, -LIMIT, LIMIT);
}

fn valueOf(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = wg.y;
  let wanted = targets[p.rowOffset + row];
  if (wanted == 0xffffffffu) {
    return;
  }
  for (var i = 0u; i < PARTIALS; i += LANES) {
    if (lane + i < p.slices) {
      atomicMax(&topKey, tops[row * p.slices + lane + i]);
    }
    sums[lane + i] = partials[row * PARTIALS + lane + i];
  }
  workgroupBarrier();
  if (lane != 0u) {
    return;
  }
  let found = atomicLoad(&topKey);
  let top = valueOf(found);
  var total = vec2<f32>(0.0);
  for (var i = 0u; i < PARTIALS; i += 8u) {
    let a = sums[i];
    let b = sums[i + 1u];
    let c = sums[i + 2u];
    let d = sums[i + 3u];
    let e = sums[i + 4u];
    let f = sums[i + 5u];
    let g = sums[i + 6u];
    let h = sums[i + 7u];
    total = (((((((total + a) + b) + c) + d) + e) + f) + g) + h;
  }
  let logSum = log(total.x);
  let logprob = (scaled(row * p.stride + min(wanted, p.vocabulary - 1u)) - top) - logSum;
  var out = vec4<f32>(top, logSum, logprob, logSum - total.y / total.x);
  if (found == BAD || wanted >= p.vocabulary) {
    out = vec4<f32>(bitcast<f32>(max(wanted, 1u) | 0x7fc00000u));
  }
  stats[p.rowOffset + row] = out;
}
