// The softmax of attention-softmax.wgsl, bit for bit, for GPUs: see there. One workgroup a (row, head): the lanes find
// the maximum and the exponentials together; the sum is taken by one lane in the order of j, from workgroup memory, a
// panel at a time.
struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  sStride: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read_write> s: array<f32>;  // [rows, heads, sStride]

const LANES = 64u;
const PANEL = 512u;

var<workgroup> tops: array<f32, 64>;
var<workgroup> panel: array<f32, 512>;
var<workgroup> inverse: f32;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let index = wg.y * groups.x + wg.x;
  let row = index / p.heads;
  if (row >= p.rows) {
    return;
  }
  let length = meta_[p.rowOffset + row].y + 1u;
  let base = index * p.sStride;
  var top = s[base];
  for (var j = lane; j < length; j += LANES) {
    top = max(top, s[base + j]);
  }
  tops[lane] = top;
  workgroupBarrier();
  for (var i = 0u; i < LANES; i++) {
    top = max(top, tops[i]);
  }
  var sum = 0.0;
  for (var first = 0u; first < length; first += PANEL) {
    let count = min(PANEL, length - first);
    for (var j = lane; j < count; j += LANES) {
      let e = exp(s[base + first + j] - top);
      s[base + first + j] = e;
      panel[j] = e;
    }
    workgroupBarrier();
    if (lane == 0u) {
      for (var j = 0u; j < count; j++) {
        sum = sum + panel[j];
      }
    }
    workgroupBarrier();
  }
  if (lane == 0u) {
    inverse = 1.0 / sum;
  }
  let scale = workgroupUniformLoad(&inverse);
  for (var j = lane; j < length; j += LANES) {
    s[base + j] = s[base + j] * scale;
  }
}
