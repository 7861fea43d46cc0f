// Joins the chunks that attention-partial made of rows: the softmax over all their keys. Also records the two together.
// Invariant: chunks are joined in ascending order, so a row's bits do not depend on how many chunks others have.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { attentionPartial, attentionPartialGrid, partialConstants, partialHeader } from './attention-partial.ts';
import { attend, type CachedShape, cachedBatch, chunkKeys, decodeShapes, expError } from './cached-attention-cases.ts';
import { unit } from './case-data.ts';
import type { HeadShape } from './qk-norm-rope.ts';

/** Grid of `attention-merge`: one thread a (row, head, four elements). */
export function attentionMergeGrid(rows: number, heads: number, headDim: number): [number, number, number] {
  return foldedGrid(ceilDiv((rows * heads * headDim) / 4, 64));
}

/** Relative bound of a chunk's weight after `chunks` joins with maxima that lie `range` apart. */
export function mergeError(chunks: number, range: number): number {
  return (chunks + 1) * (expError(range) + 4 * unit);
}

function makeCase(shape: CachedShape): KernelCase {
  const batch = cachedBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength } = batch;
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
  return {
    name: `${rows} rows up to ${cacheLength}, ${heads}/${kvHeads} heads of ${headDim}`,
    params: { rows, heads, d4: headDim / 4, outStride4: (heads * headDim) / 4, chunks },
    grid: attentionMergeGrid(rows, heads, headDim),
    inputs: { meta: batch.meta, partials },
    expected: { out: { values, bounds } },
  };
}

export const attentionMerge: QualifiedKernel = {
  name: 'attention-merge',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 'partials', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['heads', 'u32'],
    ['d4', 'u32'],
    ['outStride4', 'u32'],
    ['chunks', 'u32'],
  ],
  cases: () => decodeShapes.map(makeCase),
};

/** What attention over a 16-bit cache takes besides its buffers. Strides in elements. */
export interface CachedAttentionShape extends HeadShape {
  rows: number;
  qStride: number;
  outStride: number;
  /** Positions of a slot, a multiple of 64. */
  cacheLength: number;
}

/** Buffers of decode attention; see recordAttentionDecode. */
export interface DecodeViews {
  meta: View;
  q: View;
  k: View;
  v: View;
  scales: View;
  partials: View;
  out: View;
}

/**
 * Records attention of single rows, each over its slot's cache up to its position; the row's own k and v are cached
 * already. `chunks`: an upper bound of ceil((position + 1) / 64). Views: meta u32 [rows, 2] (slot, position), q f32
 * [rows, qStride], k, v and scales as `cache-rows` writes them, partials f32 [rows * partialWidth(heads, headDim,
 * chunks)], out f32 [rows, outStride].
 */
export function recordAttentionDecode(
  r: Recorder,
  views: DecodeViews,
  shape: CachedAttentionShape,
  chunks: number,
): void {
  const { rows, heads, kvHeads, headDim, cacheLength, qStride, outStride } = shape;
  const { meta, q, k, v, scales, partials, out } = views;
  const scale = 1 / Math.sqrt(headDim);
  r.dispatch(
    attentionPartial,
    [meta, q, k, v, scales, partials],
    { heads, kvHeads, qStride4: qStride / 4, cacheLength, chunks, scale },
    attentionPartialGrid(rows, kvHeads, chunks),
    partialConstants(heads / kvHeads, headDim),
  );
  r.dispatch(
    attentionMerge,
    [meta, partials, out],
    { rows, heads, d4: headDim / 4, outStride4: outStride / 4, chunks },
    attentionMergeGrid(rows, heads, headDim),
  );
}
