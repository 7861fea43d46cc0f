// The sums of attention-values.wgsl, bit for bit, for software adapters with subgroups of eight: see there. A lane
// owns four dimensions for PAIRS (1, 2, 4 or 8) pairs of a row and a query head that share a key-value head. A tile's
// rows of one slot are done together as far as all of them see the keys, because they share the loads of the cache;
// each lane loads one quad of weights for all eight. The rest of each row follows on its own. j ascending, one
// accumulator.
enable subgroups;

struct Params {
  rows: u32,
  rowOffset: u32,
  heads: u32,
  kvHeads: u32,
  d4: u32,
  outStride4: u32,
  cacheLength: u32,
  bStride4: u32,
  sStride4: u32,
}

override PAIRS: u32 = 8u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> meta_: array<vec2<u32>>;  // [all rows]: slot, position
@group(0) @binding(2) var<storage, read> s: array<vec4<f32>>;  // [rows, heads, sStride4]
@group(0) @binding(3) var<storage, read> b: array<vec4<f32>>;  // [slots, cacheLength, bStride4]
@group(0) @binding(4) var<storage, read_write> out: array<vec4<f32>>;  // [all rows, outStride4]

// A pair is a row and a query head of key-value head kv; pairs of a row are adjacent. Pairs past the end are those of
// the last row: they compute what nobody stores.
fn rowOf(pair: u32) -> u32 {
  return min(pair / (p.heads / p.kvHeads), p.rows - 1u);
}

fn headOf(pair: u32, kv: u32) -> u32 {
  let group = p.heads / p.kvHeads;
  return kv * group + pair % group;
}

fn weights(pair: u32, kv: u32) -> u32 {
  return (rowOf(pair) * p.heads + headOf(pair, kv)) * p.sStride4;
}

fn step(acc: vec4<f32>, weight: vec4<f32>, b0: vec4<f32>, b1: vec4<f32>, b2: vec4<f32>, b3: vec4<f32>) -> vec4<f32> {
  var sum = fma(vec4<f32>(weight.x), b0, acc);
  sum = fma(vec4<f32>(weight.y), b1, sum);
  sum = fma(vec4<f32>(weight.z), b2, sum);
  return fma(vec4<f32>(weight.w), b3, sum);
}

// The quads of one pair from `quad` on, and the output.
fn finish(pair: u32, kv: u32, slot: u32, quad: u32, d: u32, value: vec4<f32>) {
  let row = pair / (p.heads / p.kvHeads);
  if (row >= p.rows || d >= p.d4) {
    return;
  }
  let place = meta_[p.rowOffset + row];
  if (place.x != slot) {
    return;
  }
  let source = weights(pair, kv);
  let base = slot * p.cacheLength;
  let at = kv * p.d4 + d;
  var acc = value;
  for (var q = quad; q * 4u <= place.y; q++) {
    let j = q * 4u;
    acc = step(
      acc,
      s[source + q],
      b[(base + j) * p.bStride4 + at],
      b[(base + min(j + 1u, place.y)) * p.bStride4 + at],
      b[(base + min(j + 2u, place.y)) * p.bStride4 + at],
      b[(base + min(j + 3u, place.y)) * p.bStride4 + at],
    );
  }
  out[(p.rowOffset + row) * p.outStride4 + headOf(pair, kv) * p.d4 + d] = acc;
}

// All pairs of the tile over the keys of one slot; each of its rows sees at least the first `shared` quads whole.
fn slotValues(pair: u32, kv: u32, slot: u32, shared_: u32, d: u32, lane: u32) {
  let s0 = weights(pair + 0u, kv);
  let s1 = weights(pair + 1u, kv);
  let s2 = weights(pair + 2u, kv);
  let s3 = weights(pair + 3u, kv);
  let s4 = weights(pair + 4u, kv);
  let s5 = weights(pair + 5u, kv);
  let s6 = weights(pair + 6u, kv);
  let s7 = weights(pair + 7u, kv);
  let at = kv * p.d4 + min(d, p.d4 - 1u);
  let base = slot * p.cacheLength;
  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  var acc4 = vec4<f32>(0.0);
  var acc5 = vec4<f32>(0.0);
  var acc6 = vec4<f32>(0.0);
  var acc7 = vec4<f32>(0.0);
  for (var first = 0u; first < shared_; first += 8u) {
    let own = min(first + lane, shared_ - 1u);
    var own0 = vec4<f32>(0.0);
    var own1 = vec4<f32>(0.0);
    var own2 = vec4<f32>(0.0);
    var own3 = vec4<f32>(0.0);
    var own4 = vec4<f32>(0.0);
    var own5 = vec4<f32>(0.0);
    var own6 = vec4<f32>(0.0);
    var own7 = vec4<f32>(0.0);
    own0 = s[s0 + own];
    if (PAIRS >= 2u) {
      own1 = s[s1 + own];
    }
    if (PAIRS >= 4u) {
      own2 = s[s2 + own];
      own3 = s[s3 + own];
    }
    if (PAIRS >= 8u) {
      own4 = s[s4 + own];
      own5 = s[s5 + own];
      own6 = s[s6 + own];
      own7 = s[s7 + own];
    }
    let count = min(8u, shared_ - first);
    for (var i = 0u; i < count; i++) {
      let from_ = (base + (first + i) * 4u) * p.bStride4 + at;
      let b0 = b[from_];
      let b1 = b[from_ + p.bStride4];
      let b2 = b[from_ + 2u * p.bStride4];
      let b3 = b[from_ + 3u * p.bStride4];
      acc0 = step(acc0, subgroupShuffle(own0, i), b0, b1, b2, b3);
      if (PAIRS >= 2u) {
        acc1 = step(acc1, subgroupShuffle(own1, i), b0, b1, b2, b3);
      }
      if (PAIRS >= 4u) {
        acc2 = step(acc2, subgroupShuffle(own2, i), b0, b1, b2, b3);
        acc3 = step(acc3, subgroupShuffle(own3, i), b0, b1, b2, b3);
      }
      if (PAIRS >= 8u) {
        acc4 = step(acc4, subgroupShuffle(own4, i), b0, b1, b2, b3);
        acc5 = step(acc5, subgroupShuffle(own5, i), b0, b1, b2, b3);
        acc6 = step(acc6, subgroupShuffle(own6, i), b0, b1, b2, b3);
        acc7 = step(acc7, subgroupShuffle(own7, i), b0, b1, b2, b3);
      }
    }
  }
  finish(pair + 0u, kv, slot, shared_, d, acc0);
  if (PAIRS >= 2u) {
    finish(pair + 1u, kv, slot, shared_, d, acc1);
  }
  if (PAIRS >= 4u) {
    finish(pair + 2u, kv, slot, shared_, d, acc2);
    finish(pair + 3u, kv, slot, shared_, d, acc3);
  }
  if (PAIRS >= 8u) {
    finish(pair + 4u, kv, slot, shared_, d, acc4);
    finish(pair + 5u, kv, slot, shared_, d, acc5);
    finish(pair + 6u, kv, slot, shared_, d, acc6);
    finish(pair + 7u, kv, slot, shared_, d, acc7);
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
  // Rows of a slot are adjacent with ascending positions: the first row of a run sees the fewest keys.
  var before = 0xffffffffu;
  for (var row = rowOf(pair); row <= end; row++) {
    let place = meta_[p.rowOffset + row];
    if (place.x != before) {
      slotValues(pair, kv, place.x, (place.y + 1u) / 4u, wg.x * 8u + thread, lane);
    }
    before = place.x;
  }
}
