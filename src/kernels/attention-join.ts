// What joining the chunks of attention-partial must give: the softmax over all of a row's keys, in f64, with bounds.
// Not a kernel: matrix-rows joins them on its way to the product.
import { ceilDiv } from '../gpu/kernel.ts';
import { partialHeader } from './attention-partial.ts';
import { attend, type CachedShape, cachedBatch, chunkKeys, expError } from './cached-attention-cases.ts';
import { unit } from './case-data.ts';

/** Relative bound of a chunk's weight after `chunks` joins with maxima that lie `range` apart. */
export function mergeError(chunks: number, range: number): number {
  return (chunks + 1) * (expError(range) + 4 * unit);
}

/**
 * Partial results of a batch as attention-partial lays them out, NaN where none is made, and the rows they join to:
 * values and bounds [rows, heads * headDim]. `chunks` is one more than any row needs.
 */
export function joinedReference(shape: CachedShape) {
  const batch = cachedBatch(shape);
  const { rows, heads, headDim, cacheLength, meta } = batch;
  const chunks = cacheLength / chunkKeys + 1;
  const pitch = headDim + partialHeader;
  const partials = new Float32Array(rows * heads * chunks * pitch).fill(Number.NaN);
  const values = new Float64Array(rows * heads * headDim);
  const bounds = new Float64Array(values.length);
  for (let r = 0; r < rows; r++) {
    const keys = batch.meta[r * 2 + 1]! + 1;
    const count = ceilDiv(keys, chunkKeys);
    for (let h = 0; h < heads; h++) {
      const at = (r * heads + h) * chunks * pitch;
      for (let c = 0; c < count; c++) {
        const part = attend(batch, r, h, c * chunkKeys, Math.min(keys, (c + 1) * chunkKeys));
        partials.set([part.m, part.l], at + c * pitch);
        partials.set(part.o, at + c * pitch + partialHeader);
      }
      const states = Array.from({ length: count }, (_, c) => partials.subarray(at + c * pitch, at + (c + 1) * pitch));
      const m = states.reduce((most, state) => Math.max(most, state[0]!), Number.NEGATIVE_INFINITY);
      const range = states.reduce((most, state) => Math.max(most, m - state[0]!), 0);
      const l = states.reduce((sum, state) => sum + state[1]! * Math.exp(state[0]! - m), 0);
      for (let d = 0; d < headDim; d++) {
        const terms = states.map((state) => (state[partialHeader + d]! * Math.exp(state[0]! - m)) / l);
        const size = terms.reduce((sum, term) => sum + Math.abs(term), 0);
        values[(r * heads + h) * headDim + d] = terms.reduce((sum, term) => sum + term, 0);
        bounds[(r * heads + h) * headDim + d] = 2 * mergeError(count, range) * size + 1e-36;
      }
    }
  }
  return { rows, heads, headDim, meta, chunks, partials, values, bounds };
}
