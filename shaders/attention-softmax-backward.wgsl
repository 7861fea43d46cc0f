// In place on ds, which holds the gradient of the probabilities: with D = sum_j prob[j] * ds[j],
// ds[r, h, j] = scale * prob[r, h, j] * (ds[r, h, j] - D)   for j <= position(r).
// One thread a (row, head), j ascending: bit-repeatable.
struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  sStride: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read> prob: array<f32>;  // [rows, heads, sStride]
@group(0) @binding(3) var<storage, read_write> ds: array<f32>;  // [rows, heads, sStride]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  let row = index / p.heads;
  if (row >= p.rows) {
    return;
  }
  let length = meta_[p.rowOffset + row].y + 1u;
  let base = index * p.sStride;
  var sum = 0.0;
  for (var j = 0u; j < length; j++) {
    sum = fma(prob[base + j], ds[base + j], sum);
  }
  for (var j = 0u; j < length; j++) {
    ds[base + j] = p.scale * (prob[base + j] * (ds[base + j] - sum));
  }
}
