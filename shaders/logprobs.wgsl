// stats[r] = (top, logSum, logprob, entropy) of x[v] = logits[r, v] / T over the ids v < vocabulary:
//   top = max x, logSum = log(sum exp(x - top)), logprob = (x[target] - top) - logSum, in nats,
//   entropy = logSum - sum exp(x - top) (x - top) / sum exp(x - top).
// One workgroup a row: lane l adds columns l, l + 256, ... in order into its own partial, then the 256 partials are
// added in order: the bits depend on the row alone. A row with a NaN, an Infinity or a target beyond the vocabulary
// gets NaN; a row whose target is 0xffffffff is left as it is.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride: u32,
  rowOffset: u32,
  inverseTemperature: f32,
}

const LANES = 256u;
const LIMIT = 1.7e38;  // finite, and the difference of two such values is as well
const BAD = 0xffffffffu;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;  // [rows, stride]
@group(0) @binding(2) var<storage, read> targets: array<u32>;  // [all rows] from rowOffset
@group(0) @binding(3) var<storage, read_write> stats: array<vec4<f32>>;  // [all rows, 4] from rowOffset

var<workgroup> topKey: atomic<u32>;
var<workgroup> sums: array<vec2<f32>, 256>;

// The clamp also keeps a compiler from fusing the product with a later difference.
fn scaled(at: u32) -> f32 {
  return clamp(logits[at] * p.inverseTemperature, -LIMIT, LIMIT);
}

// A u32 in the order of x; 0 beyond the vocabulary, BAD for a logit that is not finite (found on its bits).
fn keyAt(base: u32, v: u32) -> u32 {
  if (v >= p.vocabulary) {
    return 0u;
  }
  let finite = (bitcast<u32>(logits[base + v]) & 0x7f800000u) != 0x7f800000u;
  let bits = bitcast<u32>(scaled(base + v));
  return select(BAD, select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u), finite);
}

fn valueOf(key: u32) -> f32 {
  return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

// Adds (e, e d) of one column; a column beyond the vocabulary leaves the sums as they are.
fn add(sum: vec2<f32>, base: u32, v: u32, top: f32) -> vec2<f32> {
  if (v >= p.vocabulary) {
    return sum;
  }
  let d = scaled(base + v) - top;
  let e = exp(d);
  return vec2<f32>(sum.x + e, fma(e, d, sum.y));
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
  let wanted = targets[p.rowOffset + row];
  if (wanted == 0xffffffffu) {
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
  var sum = vec2<f32>(0.0);
  for (var v = lane; v < p.vocabulary; v += LANES * 4u) {
    sum = add(sum, base, v, top);
    sum = add(sum, base, v + LANES, top);
    sum = add(sum, base, v + LANES * 2u, top);
    sum = add(sum, base, v + LANES * 3u, top);
  }
  sums[lane] = sum;
  workgroupBarrier();
  if (lane != 0u) {
    return;
  }
  var total = vec2<f32>(0.0);
  for (var i = 0u; i < LANES; i++) {
    total = total + sums[i];
  }
  let logSum = log(total.x);
  let logprob = (scaled(base + min(wanted, p.vocabulary - 1u)) - top) - logSum;
  var out = vec4<f32>(top, logSum, logprob, logSum - total.y / total.x);
  if (found == BAD || wanted >= p.vocabulary) {
    out = vec4<f32>(bitcast<f32>(max(wanted, 1u) | 0x7fc00000u));
  }
  stats[p.rowOffset + row] = out;
}
