// Attention of single rows over a 16-bit cache (decode), one workgroup a chunk of 64 keys: the chunk's largest score,
// sum of weights and weighted values. Not the whole softmax: attention-merge joins the chunks.
// Invariant: a chunk's bits depend on the row's q and its slot's cache alone, and are those of attention-flash.
import { constantsOnce, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { KernelError } from '../lib/errors.ts';
import { attend, type CachedShape, cachedBatch, chunkKeys, decodeShapes } from './cached-attention-cases.ts';

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
