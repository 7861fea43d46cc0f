// A small ragged batch for the attention kernels' cases: two slots with their own lengths, grouped heads, a shared cache.
// Holds the f64 definitions of the products that the kernels share.
import { testValues, unit } from './case-data.ts';

export interface AttentionShape {
  heads: number;
  kvHeads: number;
  headDim: number;
  cacheLength: number;
  /** Tokens of each slot. */
  lengths: number[];
}

export interface AttentionBatch extends AttentionShape {
  rows: number;
  /** [rows, 2]: slot, position. */
  meta: Uint32Array<ArrayBuffer>;
  /** [slots, 2]: first row, number of rows. */
  ranges: Uint32Array<ArrayBuffer>;
  /** [rows, heads * headDim]. */
  a: Float32Array<ArrayBuffer>;
  /** [slots, cacheLength, kvHeads * headDim]. */
  b: Float32Array<ArrayBuffer>;
  /** [rows, heads, cacheLength]: zero past the row's position. */
  s: Float32Array<ArrayBuffer>;
}

export const attentionShapes: AttentionShape[] = [
  { heads: 1, kvHeads: 1, headDim: 4, cacheLength: 4, lengths: [1] },
  { heads: 4, kvHeads: 2, headDim: 32, cacheLength: 20, lengths: [17, 5] },
  { heads: 9, kvHeads: 3, headDim: 64, cacheLength: 68, lengths: [3, 67] },
];

export function attentionBatch(shape: AttentionShape): AttentionBatch {
  const { heads, kvHeads, headDim, cacheLength, lengths } = shape;
  const places = lengths.flatMap((length, slot) => Array.from({ length }, (_, position) => [slot, position]));
  const rows = places.length;
  const starts = lengths.map((_, slot) => lengths.slice(0, slot).reduce((sum, n) => sum + n, 0));
  const s = testValues(rows * heads * cacheLength, 73);
  for (let r = 0; r < rows; r++) {
    for (let h = 0; h < heads; h++)
      s.fill(0, (r * heads + h) * cacheLength + places[r]![1]! + 1, (r * heads + h + 1) * cacheLength);
  }
  return {
    ...shape,
    rows,
    meta: Uint32Array.from(places.flat()),
    ranges: Uint32Array.from(lengths.flatMap((length, slot) => [starts[slot]!, length])),
    a: testValues(rows * heads * headDim, 71),
    b: testValues(lengths.length * cacheLength * kvHeads * headDim, 72),
    s,
  };
}

/** Calls `visit` for every (row, head, j <= position) with the offsets of its entries in a, b and s. */
export function eachScore(
  batch: AttentionBatch,
  visit: (s: number, a: number, b: number, j: number, slot: number) => void,
): void {
  const { heads, kvHeads, headDim, cacheLength } = batch;
  for (let r = 0; r < batch.rows; r++) {
    const slot = batch.meta[r * 2]!;
    for (let h = 0; h < heads; h++) {
      const kv = Math.floor(h / (heads / kvHeads));
      for (let j = 0; j <= batch.meta[r * 2 + 1]!; j++) {
        const b = ((slot * cacheLength + j) * kvHeads + kv) * headDim;
        visit((r * heads + h) * cacheLength + j, (r * heads + h) * headDim, b, j, slot);
      }
    }
  }
}

/** Sums of products with the bound of one serial f32 sum: (terms + 4) * 2^-24 * sum |terms|. */
export class SumTable {
  readonly values: Float64Array;
  readonly #magnitudes: Float64Array;
  readonly #terms: Float64Array;
  constructor(length: number, initial?: Float32Array) {
    this.values = initial ? Float64Array.from(initial) : new Float64Array(length);
    this.#magnitudes = this.values.map(Math.abs);
    this.#terms = new Float64Array(length);
  }
  add(at: number, term: number): void {
    this.values[at]! += term;
    this.#magnitudes[at]! += Math.abs(term);
    this.#terms[at]! += 1;
  }
  bounds(): Float64Array {
    return this.#magnitudes.map((m, i) => (this.#terms[i]! + 4) * unit * m + 1e-38);
  }
}
