// A batch over a 16-bit cache for the attention kernels' cases: rows at given places, queries, packed keys and values,
// and the f64 attention of a row over a range of keys with what f32 may be off by.
// Invariant: entries that no row may read are NaN, in the values and in the scales.
import { testValues, unit } from './case-data.ts';
import { packReference } from './matrix-pack.ts';
import type { HeadShape } from './qk-norm-rope.ts';

/** Keys of a chunk: part of the definition of the family's attention. */
export const chunkKeys = 64;

export interface CachedShape extends HeadShape {
  /** Slot and position of each row. */
  places: readonly (readonly [slot: number, position: number])[];
  /** Size of queries. */
  queryScale?: number;
}

export interface CachedBatch extends CachedShape {
  rows: number;
  slots: number;
  /** Positions of a slot, a multiple of 64. */
  cacheLength: number;
  /** [rows, 2]: slot, position. */
  meta: Uint32Array<ArrayBuffer>;
  /** [rows, heads * headDim]. */
  q: Float32Array<ArrayBuffer>;
  /** u32 [slots, kvHeads, cacheLength, headDim / 2]. */
  k: Uint32Array<ArrayBuffer>;
  v: Uint32Array<ArrayBuffer>;
  /** [slots, kvHeads, cacheLength, 2]: of k, of v. */
  scales: Float32Array<ArrayBuffer>;
  /** What k and v stand for, [slots, kvHeads, cacheLength, headDim]. */
  keys: Float64Array;
  values: Float64Array;
  /** 1 / sqrt(headDim) in f32. */
  scale: number;
}

/** The batch of a shape: keys of a slot up to its last row's position, NaN after that. */
export function cachedBatch(shape: CachedShape): CachedBatch {
  const { heads, kvHeads, headDim, places } = shape;
  const rows = places.length;
  const slots = Math.max(...places.map(([slot]) => slot)) + 1;
  const longest = Math.max(...places.map(([, position]) => position)) + 1;
  const cacheLength = Math.ceil(longest / chunkKeys) * chunkKeys;
  const entries = slots * kvHeads * cacheLength;
  const nan = 0x7e007e00;
  const k = new Uint32Array((entries * headDim) / 2).fill(nan);
  const v = k.slice();
  const keys = new Float64Array(entries * headDim).fill(Number.NaN);
  const values = keys.slice();
  const scales = new Float32Array(entries * 2).fill(Number.NaN);
  const fill = (which: 0 | 1, entry: number, words: Uint32Array, exact: Float64Array) => {
    const x = testValues(headDim, 300 + which + entry * 2, 2 ** (((entry * 5) % 7) - 3));
    const pack = packReference(x, 1, headDim, headDim);
    words.set(pack.packed, (entry * headDim) / 2);
    exact.set(pack.values, entry * headDim);
    scales[entry * 2 + which] = pack.scales[0]!;
  };
  for (let slot = 0; slot < slots; slot++) {
    const length = Math.max(0, ...places.filter(([s]) => s === slot).map(([, position]) => position + 1));
    for (let kv = 0; kv < kvHeads; kv++) {
      for (let j = 0; j < length; j++) {
        const entry = (slot * kvHeads + kv) * cacheLength + j;
        fill(0, entry, k, keys);
        fill(1, entry, v, values);
      }
    }
  }
  return {
    ...shape,
    rows,
    slots,
    cacheLength,
    meta: Uint32Array.from(places.flat()),
    q: testValues(rows * heads * headDim, 71, shape.queryScale ?? 0.25),
    k,
    v,
    scales,
    keys,
    values,
    scale: Math.fround(1 / Math.sqrt(headDim)),
  };
}

/** A batch whose q the kernel may make itself: in f64 then, and what it may be off by. */
export type AttendedBatch = Omit<CachedBatch, 'q'> & { q: Float32Array | Float64Array; qBounds?: Float64Array };

/** A row's attention over some keys: sums in f64 relative to m, and bounds of f32 sums in the family's order. */
export interface Attended {
  m: number;
  mBound: number;
  l: number;
  lBound: number;
  o: Float64Array;
  oBound: Float64Array;
  /** Sums of |weight * value|. */
  size: Float64Array;
  /** exp(s_j - m), and its relative bound. */
  weights: Float64Array;
  relative: Float64Array;
  /** s_j, and its absolute bound. */
  scores: Float64Array;
  off: Float64Array;
}

/** Twice the unit roundoff: WGSL's exp may be 3 + 2 |x| units in the last place off. */
export const expError = (x: number): number => 2 * unit * (3 + 2 * Math.abs(x));

/** Attention of row `r`, head `h` over keys `first` to `end` - 1. */
export function attend(batch: AttendedBatch, r: number, h: number, first: number, end: number): Attended {
  const { heads, kvHeads, headDim, cacheLength } = batch;
  const kv = Math.floor(h / (heads / kvHeads));
  const entry = (batch.meta[r * 2]! * kvHeads + kv) * cacheLength;
  const count = end - first;
  const s = new Float64Array(count);
  const off = new Float64Array(count);
  for (let j = 0; j < count; j++) {
    let all = 0;
    let given = 0;
    for (let d = 0; d < headDim; d++) {
      const at = (r * heads + h) * headDim + d;
      const key = batch.keys[(entry + first + j) * headDim + d]!;
      s[j]! += batch.q[at]! * key * batch.scale;
      all += Math.abs(batch.q[at]! * key) * batch.scale;
      given += (batch.qBounds?.[at] ?? 0) * Math.abs(key) * batch.scale;
    }
    off[j] = (headDim + 3) * unit * all + 1.001 * given + 1e-37;
  }
  const m = s.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  const mBound = off.reduce((most, value) => Math.max(most, value), 0) + unit * Math.abs(m);
  const weights = s.map((value) => Math.exp(value - m));
  const relative = s.map((value, j) => {
    const e = value - m;
    return Math.expm1(off[j]! + mBound + unit * Math.abs(e)) + expError(e);
  });
  const o = new Float64Array(headDim);
  const oBound = o.slice();
  const size = o.slice();
  const result = { m, mBound, l: 0, lBound: 0, o, oBound, size };
  for (let j = 0; j < count; j++) {
    const weight = weights[j]!;
    result.l += weight;
    result.lBound += weight * (relative[j]! + chunkKeys * unit) + 1e-37;
    for (let d = 0; d < headDim; d++) {
      const term = weight * batch.values[(entry + first + j) * headDim + d]!;
      o[d]! += term;
      size[d]! += Math.abs(term);
      oBound[d]! += Math.abs(term) * (relative[j]! + (chunkKeys + 4) * unit) + 1e-36;
    }
  }
  return { ...result, weights, relative, scores: s, off };
}

const run = (slot: number, from: number, to: number) =>
  Array.from({ length: to - from }, (_, i) => [slot, from + i] as const);

/** Batches of single rows: group 1 to 4, borders of chunks, slots out of order, large scores. */
export const decodeShapes: CachedShape[] = [
  { heads: 1, kvHeads: 1, headDim: 16, places: [[0, 0]] },
  {
    heads: 4,
    kvHeads: 2,
    headDim: 64,
    places: [
      [2, 63],
      [0, 62],
      [3, 64],
      [1, 127],
      [4, 128],
      [5, 5],
    ],
  },
  {
    heads: 4,
    kvHeads: 1,
    headDim: 128,
    queryScale: 0.05,
    places: [
      [0, 130],
      [1, 65],
      [2, 0],
    ],
  },
  {
    heads: 2,
    kvHeads: 2,
    headDim: 128,
    queryScale: 2,
    places: [
      [1, 129],
      [0, 319],
    ],
  },
  {
    heads: 6,
    kvHeads: 2,
    headDim: 96,
    places: [
      [0, 70],
      [1, 3],
    ],
  },
];

/** Batches of runs of rows: lengths about tiles and chunks, starts inside a slot, group 1 to 4. */
export const runShapes: CachedShape[] = [
  { heads: 1, kvHeads: 1, headDim: 16, places: run(0, 0, 1) },
  { heads: 4, kvHeads: 2, headDim: 64, places: [...run(0, 0, 63), ...run(2, 60, 66), ...run(1, 0, 33)] },
  { heads: 2, kvHeads: 1, headDim: 128, queryScale: 0.05, places: [...run(1, 0, 65), ...run(0, 127, 130)] },
  { heads: 4, kvHeads: 1, headDim: 32, queryScale: 2, places: [...run(0, 0, 129), ...run(1, 100, 101)] },
  { heads: 3, kvHeads: 1, headDim: 96, places: run(0, 31, 96) },
];
