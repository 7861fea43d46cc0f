// Attention of single rows over a 16-bit cache (decode) from q, k and v as projected, one workgroup a chunk of 64 keys: the
// chunk's largest score, sum of weights and weighted values; the row's own k and v go to the cache on the way.
// Not the whole softmax: matrix-rows joins the chunks. Invariant: a chunk's bits depend on the row and its slot's cache
// alone, and are those of cache-rows and attention-flash.
import type { View } from '../gpu/buffers.ts';
import { constantsOnce, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { KernelError } from '../lib/errors.ts';
import { type CacheRowsShape, certainKey, rotated } from './cache-rows.ts';
import {
  attend,
  type CachedBatch,
  type CachedShape,
  cachedBatch,
  chunkKeys,
  decodeShapes,
} from './cached-attention-cases.ts';
import { testValues } from './case-data.ts';
import { packReference } from './matrix-pack.ts';
import { type HeadShape, ropeTable } from './qk-norm-rope.ts';

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
export function partialConstants(group: number, headDim: number, norm: boolean) {
  return once((group * 512 + headDim) * 2 + (norm ? 1 : 0), () => {
    if (!Number.isInteger(group) || group > 8 || headDim % 16 !== 0 || headDim > 128) {
      throw new KernelError(
        'attention-shape',
        `attending over a 16-bit cache: ${group} query heads of ${headDim} for each key-value head; wanted at most 8 ` +
          'heads of a multiple of 16, at most 128. Use the portable kernels.',
      );
    }
    return { NORM: norm ? 1 : 0, GROUP: group, D8: headDim / 8 };
  });
}

/** The rows of a batch before their heads are made ready: raw and gain, and what becomes of them, in f64 and in the cache. */
function rawRows(batch: CachedBatch, norm: boolean) {
  const { rows, heads, kvHeads, headDim, cacheLength, meta } = batch;
  const rawStride = (heads + 2 * kvHeads) * headDim;
  const raw = testValues(rows * rawStride, 111, norm ? 1.5 : (batch.queryScale ?? 0.25));
  const gain = testValues(2 * headDim, 112, batch.queryScale ?? 0.25);
  const rope = ropeTable(cacheLength, headDim);
  const q = new Float64Array(rows * heads * headDim);
  const qBounds = q.slice();
  const [k, v] = [batch.k.slice(), batch.v.slice()];
  const [keys, values] = [batch.keys.slice(), batch.values.slice()];
  const scales = batch.scales.slice();
  const before = { k: batch.k.slice(), v: batch.v.slice(), scales: batch.scales.slice() };
  for (let r = 0; r < rows; r++) {
    const [slot, position] = [meta[r * 2]!, meta[r * 2 + 1]!];
    const turns = rope.subarray(position * headDim, (position + 1) * headDim);
    for (let h = 0; h < heads + 2 * kvHeads; h++) {
      const base = r * rawStride + h * headDim;
      const x = raw.subarray(base, base + headDim);
      if (h < heads) {
        const made = rotated(x, gain, turns, norm);
        q.set(made.values, (r * heads + h) * headDim);
        qBounds.set(made.bounds, (r * heads + h) * headDim);
        continue;
      }
      const which = h < heads + kvHeads ? 0 : 1;
      const entry = (slot * kvHeads + ((h - heads) % kvHeads)) * cacheLength + position;
      const draw = (n: number) => testValues(headDim, 2000 + base + 7919 * n, 1 + (r % 3));
      const pack =
        which === 0
          ? certainKey(x, draw, turns, norm ? gain.subarray(headDim) : null)
          : packReference(x, 1, headDim, headDim);
      (which === 0 ? k : v).set(pack.packed, (entry * headDim) / 2);
      (which === 0 ? keys : values).set(pack.values, entry * headDim);
      scales[entry * 2 + which] = pack.scales[0]!;
      // Nothing stands there before.
      (which === 0 ? before.k : before.v).fill(0x7e007e00, (entry * headDim) / 2, ((entry + 1) * headDim) / 2);
      before.scales[entry * 2 + which] = Number.NaN;
    }
  }
  return { raw, rawStride, gain, rope, before, batch: { ...batch, q, qBounds, k, v, keys, values, scales } };
}

function makeCase(shape: CachedShape, norm: boolean): KernelCase {
  const { raw, rawStride, gain, rope, before, batch } = rawRows(cachedBatch(shape), norm);
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
    name: `${rows} rows up to ${cacheLength}, ${heads}/${kvHeads} heads of ${headDim}${norm ? ', normalised' : ''}`,
    constants: partialConstants(heads / kvHeads, headDim, norm),
    params: { heads, kvHeads, rawStride4: rawStride / 4, cacheLength, chunks, scale: batch.scale, eps: 1e-6 },
    grid: attentionPartialGrid(rows, kvHeads, chunks),
    inputs: { meta: batch.meta, raw, gain, rope, ...before },
    expected: {
      k: batch.k,
      v: batch.v,
      scales: new Uint32Array(batch.scales.buffer),
      partials: { values, bounds },
    },
  };
}

export const attentionPartial: QualifiedKernel = {
  name: 'attention-partial',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 'raw', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'rope', access: 'read' },
    { name: 'k', access: 'read_write' },
    { name: 'v', access: 'read_write' },
    { name: 'scales', access: 'read_write' },
    { name: 'partials', access: 'read_write' },
  ],
  params: [
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['rawStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['chunks', 'u32'],
    ['scale', 'f32'],
    ['eps', 'f32'],
  ],
  constants: { NORM: 1, GROUP: 2, D8: 16 },
  cases: () => decodeShapes.map((shape, i) => makeCase(shape, i % 2 === 1)),
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
  raw: View;
  gain: View;
  rope: View;
  k: View;
  v: View;
  scales: View;
  partials: View;
}

/** What decode attention takes besides its buffers. Strides in elements. */
export type DecodeShape = Omit<CacheRowsShape, 'qStride'>;

/**
 * Records attention of single rows of different slots, each over its slot's cache up to its position, chunk by chunk:
 * heads are made ready and cached as `cache-rows` does, and matrix-rows joins the chunks. `chunks`: an upper bound of
 * ceil((position + 1) / 64). Views: raw, gain, rope, meta, k, v and scales as for `recordCacheRows`, partials f32
 * [rows * partialWidth(heads, headDim, chunks)].
 */
export function recordAttentionPartial(r: Recorder, views: DecodeViews, shape: DecodeShape, chunks: number): void {
  const { rows, heads, kvHeads, headDim, cacheLength, rawStride, eps, norm } = shape;
  const { meta, raw, gain, rope, k, v, scales, partials } = views;
  r.dispatch(
    attentionPartial,
    [meta, raw, gain, rope, k, v, scales, partials],
    { heads, kvHeads, rawStride4: rawStride / 4, cacheLength, chunks, scale: 1 / Math.sqrt(headDim), eps },
    attentionPartialGrid(rows, kvHeads, chunks),
    partialConstants(heads / kvHeads, headDim, norm),
  );
}
