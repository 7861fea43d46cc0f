// The scores of attention-scores.wgsl, bit for bit, for software adapters with subgroups of eight: see there. A lane
// owns four keys for PAIRS (1, 2, 4 or 8) pairs of a row and a query head that share a key-value head. A tile's rows
// of one slot are done together, because they share the loads of the cache; each lane loads one quad of a query for
// all eight. d ascending, one accumulator an output.
enable subgroups;

struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  kvHeads: u32,
  d4: u32,
  aStride4: u32,
  cacheLength: u32,
  bStride4: u32,
  sStride4: u32,
  scale: f32,
}

override PAIRS: u32 = 8u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read> a: array<vec4<f32>>;  // [all rows, aStride4]
@group(0) @binding(3) var<storage, read> b: array<vec4<f32>>;  // [slots, cacheLength, bStride4]
@group(0) @binding(4) var<storage, read_write> s: array<vec4<f32>>;  // [rows, heads, sStride4]

// A pair is a row and a query head of key-value head kv; pairs of a row are adjacent. Pairs past the end are those of
// the last row: they compute what nobody stores.
fn rowOf(pair: u32) -> u32 {
  return min(pair / (p.heads / p.kvHeads), p.rows - 1u);
}

fn headOf(pair: u32, kv: u32) -> u32 {
  let group = p.heads / p.kvHeads;
  return kv * group + pair % group;
}

fn query(pair: u32, kv: u32) -> u32 {
  return (p.rowOffset + rowOf(pair)) * p.aStride4 + headOf(pair, kv) * p.d4;
}

fn step(acc: vec4<f32>, x: vec4<f32>, w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>) -> vec4<f32> {
  var sum = fma(vec4<f32>(x.x), vec4<f32>(w0.x, w1.x, w2.x, w3.x), acc);
  sum = fma(vec4<f32>(x.y), vec4<f32>(w0.y, w1.y, w2.y, w3.y), sum);
  sum = fma(vec4<f32>(x.z), vec4<f32>(w0.z, w1.z, w2.z, w3.z), sum);
  return fma(vec4<f32>(x.w), vec4<f32>(w0.w, w1.w, w2.w, w3.w), sum);
}

fn finish(pair: u32, kv: u32, slot: u32, quad: u32, acc: vec4<f32>) {
  let row = pair / (p.heads / p.kvHeads);
  if (row >= p.rows) {
    return;
  }
  let place = meta_[p.rowOffset + row];
  let j = quad * 4u;
  if (place.x != slot || j > place.y) {
    return;
  }
  let inside = vec4<bool>(true, j + 1u <= place.y, j + 2u <= place.y, j + 3u <= place.y);
  s[(row * p.heads + headOf(pair, kv)) * p.sStride4 + quad] = select(vec4<f32>(0.0), p.scale * acc, inside);
}

// All pairs of the tile against the keys of one slot, of which `last` is the last that any of its rows sees.
fn slotScores(pair: u32, kv: u32, slot: u32, last: u32, quad: u32, lane: u32) {
  let a0 = query(pair + 0u, kv);
  let a1 = query(pair + 1u, kv);
  let a2 = query(pair + 2u, kv);
  let a3 = query(pair + 3u, kv);
  let a4 = query(pair + 4u, kv);
  let a5 = query(pair + 5u, kv);
  let a6 = query(pair + 6u, kv);
  let a7 = query(pair + 7u, kv);
  let cache = slot * p.cacheLength;
  let at = kv * p.d4;
  let j = quad * 4u;
  let b0 = (cache + min(j, last)) * p.bStride4 + at;
  let b1 = (cache + min(j + 1u, last)) * p.bStride4 + at;
  let b2 = (cache + min(j + 2u, last)) * p.bStride4 + at;
  let b3 = (cache + min(j + 3u, last)) * p.bStride4 + at;
  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  var acc4 = vec4<f32>(0.0);
  var acc5 = vec4<f32>(0.0);
  var acc6 = vec4<f32>(0.0);
  var acc7 = vec4<f32>(0.0);
  for (var first = 0u; first < p.d4; first += 8u) {
    let own = min(first + lane, p.d4 - 1u);
    var own0 = vec4<f32>(0.0);
    var own1 = vec4<f32>(0.0);
    var own2 = vec4<f32>(0.0);
    var own3 = vec4<f32>(0.0);
    var own4 = vec4<f32>(0.0);
    var own5 = vec4<f32>(0.0);
    var own6 = vec4<f32>(0.0);
    var own7 = vec4<f32>(0.0);
    own0 = a[a0 + own];
    if (PAIRS >= 2u) {
      own1 = a[a1 + own];
    }
    if (PAIRS >= 4u) {
      own2 = a[a2 + own];
      own3 = a[a3 + own];
    }
    if (PAIRS >= 8u) {
      own4 = a[a4 + own];
      own5 = a[a5 + own];
      own6 = a[a6 + own];
      own7 = a[a7 + own];
    }
    let count = min(8u, p.d4 - first);
    for (var i = 0u; i < count; i++) {
      let d = first + i;
      let w0 = b[b0 + d];
      let w1 = b[b1 + d];
      let w2 = b[b2 + d];
      let w3 = b[b3 + d];
      acc0 = step(acc0, subgroupShuffle(own0, i), w0, w1, w2, w3);
      if (PAIRS >= 2u) {
        acc1 = step(acc1, subgroupShuffle(own1, i), w0, w1, w2, w3);
      }
      if (PAIRS >= 4u) {
        acc2 = step(acc2, subgroupShuffle(own2, i), w0, w1, w2, w3);
        acc3 = step(acc3, subgroupShuffle(own3, i), w0, w1, w2, w3);
      }
      if (PAIRS >= 8u) {
        acc4 = step(acc4, subgroupShuffle(own4, i), w0, w1, w2, w3);
        acc5 = step(acc5, subgroupShuffle(own5, i), w0, w1, w2, w3);
        acc6 = step(acc6, subgroupShuffle(own6, i), w0, w1, w2, w3);
        acc7 = step(acc7, subgroupShuffle(own7, i), w0, w1, w2, w3);
      }
    }
  }
  finish(pair + 0u, kv, slot, quad, acc0);
  if (PAIRS >= 2u) {
    finish(pair + 1u, kv, slot, quad, acc1);
  }
  if (PAIRS >= 4u) {
    finish(pair + 2u, kv, slot, quad, acc2);
    finish(pair + 3u, kv, slot, quad, acc3);
  }
  if (PAIRS >= 8u) {
    finish(pair + 4u, kv, slot, quad, acc4);
    finish(pair + 5u, kv, slot, quad, acc5);
    finish(pair + 6u, kv, slot, quad, acc6);
    finish(pair + 7u, kv, slot, quad, acc7);
  }
}

@compute @workgroup_size(8)
fn main(
  @builtin(workgroup_id) wg: vec3<u32>,
  @builtin(local_invocation_index) thread: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let tiles = (p.rows * (p.heads / p.kvHeads) + PAIRS - 1u) / PAIRS;
  let kv = wg.y / tiles;
  let pair = wg.y % tiles * PAIRS;
  if (kv >= p.kvHeads) {
    return;
  }
  let end = rowOf(pair + PAIRS - 1u);
  // Rows of a slot are adjacent with ascending positions: the last row of a run sees the most keys.
  for (var row = rowOf(pair); row <= end; row++) {
    let place = meta_[p.rowOffset + row];
    var runEnds = row == end;
    if (!runEnds) {
      runEnds = meta_[p.rowOffset + row + 1u].x != place.x;
    }
    if (runEnds && wg.x * 32u <= place.y) {
      slotScores(pair, kv, place.x, place.y, wg.x * 8u + thread, lane);
    }
  }
}
