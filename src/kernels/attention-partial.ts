// Attention of single rows over a 16-bit cache (decode), one workgroup a chunk of 64 keys: the chunk's largest score,
// sum of weights and weighted values. Not the whole softmax: matrix-rows joins the chunks.
// Invariant: a chunk's bits depend on the row's q and its slot's cache alone, and are those of attention-flash.
import type { View } from '../gpu/buffers.ts';
import { constantsOnce, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { KernelError } from '../lib/errors.ts';
import { attend, type CachedShape, cachedBatch, chunkKeys, decodeShapes } from './cached-attention-cases.ts';
import type { HeadShape } from './qk-norm-rope.ts';

/** Words before a chunk's weighted values: m, l and two that are not written. */
export const partialHeader = 4;

/** Elements of a row's partial results for `chunks` chunks. */
export function partialWidth(heads: number, headDim: number, chunks: number): number {
  return heads * chunks * (headDim + partialHeader);
}

/** Grid of `attention-partial`: key-value heads times an upper bound of the rows' chunks, rows. */
export function attentionPartialGrid(rows: number, kvHeads: number, chunks: number): [number, number, number] {
  return [kvHeads * chunks, rows, 1];
}

const once = constantsOnce<number>();

/**
 * Pipeline constants of `attention-partial`, one object for each combination. headDim: a multiple of 16, at most 128;
 * group (query heads of a key-value head): at most 8.
 * @throws KernelError `attention-shape` for another shape.
 */
export function partialConstants(group: number, headDim: number) {
  return once(group * 512 + headDim, () => {
    if (!Number.isInteger(group) || group > 8 || headDim % 16 !== 0 || headDim > 128) {
      throw new KernelError(
        'attention-shape',
        `attending over a 16-bit cache: ${group} query heads of ${headDim} for each key-value head; wanted at most 8 ` +
          'heads of a multiple of 16, at most 128. Use the portable kernels.',
      );
    }
    return { GROUP: group, D8: headDim / 8 };
  });
}

function makeCase(shape: CachedShape): KernelCase {
  const batch = cachedBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength } = batch;
  // One more than any row needs: a bound, not a count.
  const chunks = cacheLength / chunkKeys + 1;
  const values = new Float64Array(rows * partialWidth(heads, headDim, chunks)).fill(Number.NaN);
  const bounds = new Float64Array(values.length);
  for (let r = 0; r < rows; r++) {
    const keys = batch.meta[r * 2 + 1]! + 1;
    for (let h = 0; h < heads; h++) {
      for (let first = 0; first < keys; first += chunkKeys) {
        const part = attend(batch, r, h, first, Math.min(keys, first + chunkKeys));
        const at = ((r * heads + h) * chunks + first / chunkKeys) * (headDim + partialHeader);
        values.set([part.m, part.l], at);
        bounds.set([part.mBound, part.lBound], at);
        values.set(part.o, at + partialHeader);
        bounds.set(part.oBound, at + partialHeader);
      }
    }
  }
  return {
    name: `${rows} rows up to ${cacheLength}, ${heads}/${kvHeads} heads of ${headDim}`,
    constants: partialConstants(heads / kvHeads, headDim),
    params: { heads, kvHeads, qStride4: (heads * headDim) / 4, cacheLength, chunks, scale: batch.scale },
    grid: attentionPartialGrid(rows, kvHeads, chunks),
    inputs: { meta: batch.meta, q: batch.q, k: batch.k, v: batch.v, scales: batch.scales },
    expected: { partials: { values, bounds } },
  };
}

export const attentionPartial: QualifiedKernel = {
  name: 'attention-partial',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 'q', access: 'read' },
    { name: 'k', access: 'read' },
    { name: 'v', access: 'read' },
    { name: 'scales', access: 'read' },
    { name: 'partials', access: 'read_write' },
  ],
  params: [
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['qStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['chunks', 'u32'],
    ['scale', 'f32'],
  ],
  constants: { GROUP: 2, D8: 16 },
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

/** Buffers of decode attention; see recordAttentionPartial. */
export interface DecodeViews {
  meta: View;
  q: View;
  k: View;
  v: View;
  scales: View;
  partials: View;
}

/**
 * Records attention of single rows, each over its slot's cache up to its position, chunk by chunk; the row's own k and v
 * are cached already, and matrix-rows joins the chunks. `chunks`: an upper bound of ceil((position + 1) / 64). Views:
 * meta u32 [rows, 2] (slot, position), q f32 [rows, qStride], k, v and scales as `cache-rows` writes them, partials f32
 * [rows * partialWidth(heads, headDim, chunks)].
 */
export function recordAttentionPartial(
  r: Recorder,
  views: DecodeViews,
  shape: Omit<CachedAttentionShape, 'outStride'>,
  chunks: number,
): void {
  const { rows, heads, kvHeads, headDim, cacheLength, qStride } = shape;
  const { meta, q, k, v, scales, partials } = views;
  r.dispatch(
    attentionPartial,
    [meta, q, k, v, scales, partials],
    { heads, kvHeads, qStride4: qStride / 4, cacheLength, chunks, scale: 1 / Math.sqrt(headDim) },
    attentionPartialGrid(rows, kvHeads, chunks),
    partialConstants(heads / kvHeads, headDim),
  );
}
