// In place, for j <= position(r): s[r, h, j] = exp(s[r, h, j] - max) / sum_j exp(s[r, h, j] - max).
// One thread a (row, head), j ascending: the bits depend on the row alone. Later entries stay as they are (zero).
struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  sStride: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read_write> s: array<f32>;  // [rows, heads, sStride]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  let row = index / p.heads;
  if (row >= p.rows) {
    return;
  }
  let length = meta_[p.rowOffset + row].y + 1u;
  let base = index * p.sStride;
  var top = s[base];
  for (var j = 1u; j < length; j++) {
    top = max(top, s[base + j]);
  }
  var sum = 0.0;
  for (var j = 0u; j < length; j++) {
    let e = exp(s[base + j] - top);
    s[base + j] = e;
    sum = sum + e;
  }
  let inverse = 1.0 / sum;
  for (var j = 0u; j < length; j++) {
    s[base + j] = s[base + j] * inverse;
  }
}
