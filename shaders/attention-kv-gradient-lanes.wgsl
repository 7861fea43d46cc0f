// The sums of attention-kv-gradient.wgsl, bit for bit, for software adapters with subgroups of eight: see there. A
// lane owns four dimensions of eight keys; each lane loads the weight of one of the keys for all eight. Rows in the
// order of the batch, heads in order, one accumulator an output; rows that come before a key leave its sums as they
// are.
enable subgroups;

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

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let d = wg.x * 8u + thread;
  let keyTiles = (p.cacheLength + 7u) / 8u;
  let j = wg.y % keyTiles * 8u;
  let kv = wg.y / keyTiles % p.kvHeads;
  let slot = wg.y / keyTiles / p.kvHeads;
  if (slot >= p.slots) {
    return;
  }
  let range = ranges[slot];
  let begin = max(range.x, p.rowOffset);
  let end = min(range.x + range.y, p.rowOffset + p.rows);
  if (begin >= end || meta_[end - 1u].y < j) {
    return;
  }
  let group = p.heads / p.kvHeads;
  let at = kv * p.d4 + min(d, p.d4 - 1u);
  let base = slot * p.cacheLength;
  let at0 = (base + min(j + 0u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at1 = (base + min(j + 1u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at2 = (base + min(j + 2u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at3 = (base + min(j + 3u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at4 = (base + min(j + 4u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at5 = (base + min(j + 5u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at6 = (base + min(j + 6u, p.cacheLength - 1u)) * p.outStride4 + at;
  let at7 = (base + min(j + 7u, p.cacheLength - 1u)) * p.outStride4 + at;
  var acc0 = out[at0];
  var acc1 = out[at1];
  var acc2 = out[at2];
  var acc3 = out[at3];
  var acc4 = out[at4];
  var acc5 = out[at5];
  var acc6 = out[at6];
  var acc7 = out[at7];
  for (var r = begin; r < end; r++) {
    let position = meta_[r].y;
    if (position < j) {
      continue;
    }
    let own = min(j + lane, position);
    let seen = min(position - j, 7u);
    for (var i = 0u; i < group; i++) {
      let h = kv * group + i;
      let weight = s[((r - p.rowOffset) * p.heads + h) * p.sStride + own];
      let value = a[r * p.aStride4 + h * p.d4 + min(d, p.d4 - 1u)];
      acc0 = fma(vec4<f32>(subgroupShuffle(weight, 0u)), value, acc0);
      if (seen == 7u) {
        acc1 = fma(vec4<f32>(subgroupShuffle(weight, 1u)), value, acc1);
        acc2 = fma(vec4<f32>(subgroupShuffle(weight, 2u)), value, acc2);
        acc3 = fma(vec4<f32>(subgroupShuffle(weight, 3u)), value, acc3);
        acc4 = fma(vec4<f32>(subgroupShuffle(weight, 4u)), value, acc4);
        acc5 = fma(vec4<f32>(subgroupShuffle(weight, 5u)), value, acc5);
        acc6 = fma(vec4<f32>(subgroupShuffle(weight, 6u)), value, acc6);
        acc7 = fma(vec4<f32>(subgroupShuffle(weight, 7u)), value, acc7);
      } else {
        if (seen >= 1u) { acc1 = fma(vec4<f32>(subgroupShuffle(weight, 1u)), value, acc1); }
        if (seen >= 2u) { acc2 = fma(vec4<f32>(subgroupShuffle(weight, 2u)), value, acc2); }
        if (seen >= 3u) { acc3 = fma(vec4<f32>(subgroupShuffle(weight, 3u)), value, acc3); }
        if (seen >= 4u) { acc4 = fma(vec4<f32>(subgroupShuffle(weight, 4u)), value, acc4); }
        if (seen >= 5u) { acc5 = fma(vec4<f32>(subgroupShuffle(weight, 5u)), value, acc5); }
        if (seen >= 6u) { acc6 = fma(vec4<f32>(subgroupShuffle(weight, 6u)), value, acc6); }
      }
    }
  }
  if (d >= p.d4) {
    return;
  }
  out[at0] = acc0;
  if (j + 1u < p.cacheLength) { out[at1] = acc1; }
  if (j + 2u < p.cacheLength) { out[at2] = acc2; }
  if (j + 3u < p.cacheLength) { out[at3] = acc3; }
  if (j + 4u < p.cacheLength) { out[at4] = acc4; }
  if (j + 5u < p.cacheLength) { out[at5] = acc5; }
  if (j + 6u < p.cacheLength) { out[at6] = acc6; }
  if (j + 7u < p.cacheLength) { out[at7] = acc7; }
}
