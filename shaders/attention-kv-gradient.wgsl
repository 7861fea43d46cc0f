// out[slot, j, kv, d] = before + sum over rows r of the slot with position(r) >= j, in order, and over the query heads h
// of kv, in order, of s[r, h, j] * a[r, h, d]; before is out[slot, j, kv, d] (cleared at the start of a step).
// s: score gradients with a = queries gives dK; probabilities with a = the gradient of the output gives dV.
// Rows of this chunk: [rowOffset, rowOffset + rows); those of a slot are adjacent, with ascending positions.
// One thread a (slot, j, kv, four d): it owns its output, so no atomics; the order over rows is that of the batch.
struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  kvHeads: u32,
  d4: u32,
  aStride4: u32,
  cacheLength: u32,
  outStride4: u32,
  sStride: u32,
  slots: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read> ranges: array<vec2<u32>>;  // [slots]: first row, number of rows
@group(0) @binding(3) var<storage, read> s: array<f32>;  // [rows, heads, sStride]
@group(0) @binding(4) var<storage, read> a: array<vec4<f32>>;  // [all rows, aStride4]
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;  // [slots, cacheLength, outStride4]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.y * groups.x * 64u + id.x;
  let width = p.kvHeads * p.d4;
  let d = index % p.d4;
  let kv = index / p.d4 % p.kvHeads;
  let j = index / width % p.cacheLength;
  let slot = index / width / p.cacheLength;
  if (slot >= p.slots) {
    return;
  }
  let range = ranges[slot];
  let begin = max(range.x, p.rowOffset);
  let end = min(range.x + range.y, p.rowOffset + p.rows);
  let group = p.heads / p.kvHeads;
  let at = (slot * p.cacheLength + j) * p.outStride4 + kv * p.d4 + d;
  var acc = out[at];
  for (var r = begin; r < end; r++) {
    if (meta_[r].y < j) {
      continue;
    }
    for (var i = 0u; i < group; i++) {
      let h = kv * group + i;
      let weight = s[((r - p.rowOffset) * p.heads + h) * p.sStride + j];
      acc = fma(vec4<f32>(weight), a[r * p.aStride4 + h * p.d4 + d], acc);
    }
  }
  out[at] = acc;
}
