// In place: logits[r, v] becomes dLoss/dlogits[r, v] =
//   gradient[r] / T * (1[v == target[r]] - exp(x[v] - top - logSum)), x = logits / T;
// zero for v >= vocabulary, for gradient[r] = 0 and for a target of 0xffffffff.
// One thread four columns, nothing is summed: the bits depend on the row alone.
struct Params {
  rows: u32,
  vocabulary: u32,
  stride4: u32,
  rowOffset: u32,
  inverseTemperature: f32,
}

const LIMIT = vec4<f32>(1.7e38);

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> targets: array<u32>;  // [all rows] from rowOffset
@group(0) @binding(2) var<storage, read> stats: array<vec4<f32>>;  // [all rows, 4] from rowOffset: top, logSum, -, -
@group(0) @binding(3) var<storage, read> gradient: array<f32>;  // [all rows] from rowOffset
@group(0) @binding(4) var<storage, read_write> logits: array<vec4<f32>>;  // [rows, stride4]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  let row = index / p.stride4;
  if (row >= p.rows) {
    return;
  }
  let at = p.rowOffset + row;
  let wanted = targets[at];
  let g = gradient[at] * p.inverseTemperature;
  if (wanted == 0xffffffffu || g == 0.0) {
    logits[index] = vec4<f32>(0.0);
    return;
  }
  let ids = vec4<u32>((index - row * p.stride4) * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  let x = clamp(logits[index] * p.inverseTemperature, -LIMIT, LIMIT);
  let probability = exp((x - stats[at].x) - stats[at].y);
  let hit = select(vec4<f32>(0.0), vec4<f32>(1.0), ids == vec4<u32>(wanted));
  logits[index] = select(vec4<f32>(0.0), g * (hit - probability), ids < vec4<u32>(p.vocabulary));
}
