// out[slot, j, kv] += sum over rows and heads of s[r, h, j] * a[r, h]: the gradients of cached keys and values.
// Invariant: each output is owned by one thread, which goes through rows and heads in order; no atomics.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { type AttentionShape, attentionBatch, attentionShapes, eachScore, SumTable } from './attention-cases.ts';
import { testValues } from './case-data.ts';

/** Grid of `attention-kv-gradient`: one thread a (slot, key, key-value head, four dimensions). */
export function attentionKvGradientGrid(
  slots: number,
  cacheLength: number,
  kvWidth4: number,
): [number, number, number] {
  return foldedGrid(ceilDiv(slots * cacheLength * kvWidth4, 64));
}

function makeCase(shape: AttentionShape): KernelCase {
  const batch = attentionBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength, lengths } = batch;
  const before = testValues(batch.b.length, 91);
  const sums = new SumTable(before.length, before);
  eachScore(batch, (s, a, b) => {
    for (let d = 0; d < headDim; d++) sums.add(b + d, batch.s[s]! * batch.a[a + d]!);
  });
  return {
    name: `${rows} rows, ${heads}/${kvHeads} heads of ${headDim}`,
    params: {
      rows,
      rowOffset: 0,
      heads,
      kvHeads,
      d4: headDim / 4,
      aStride4: (heads * headDim) / 4,
      cacheLength,
      outStride4: (kvHeads * headDim) / 4,
      sStride: cacheLength,
      slots: lengths.length,
    },
    grid: attentionKvGradientGrid(lengths.length, cacheLength, (kvHeads * headDim) / 4),
    inputs: { meta: batch.meta, ranges: batch.ranges, s: batch.s, a: batch.a, out: before },
    expected: { out: { values: sums.values, bounds: sums.bounds() } },
  };
}

export const attentionKvGradient: QualifiedKernel = {
  name: 'attention-kv-gradient',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 'ranges', access: 'read' },
    { name: 's', access: 'read' },
    { name: 'a', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['rowOffset', 'u32'],
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['d4', 'u32'],
    ['aStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['outStride4', 'u32'],
    ['sStride', 'u32'],
    ['slots', 'u32'],
  ],
  cases: () => attentionShapes.map(makeCase),
};

function lanesGrid(slots: number, cacheLength: number, kvHeads: number, d4: number): [number, number, number] {
  return [ceilDiv(d4, 8), ceilDiv(cacheLength, 8) * kvHeads * slots, 1];
}

/** The same for software adapters: eight keys share their loads of a row. */
export const attentionKvGradientLanes: QualifiedKernel = {
  ...attentionKvGradient,
  name: 'attention-kv-gradient-lanes',
  needs: 'subgroups-of-8',
  cases: () =>
    attentionShapes.map((shape) => ({
      ...makeCase(shape),
      grid: lanesGrid(shape.lengths.length, shape.cacheLength, shape.kvHeads, shape.headDim / 4),
    })),
};

/** The scalars of `attention-kv-gradient`. */
export interface AttentionKvGradientParams {
  rows: number;
  rowOffset: number;
  heads: number;
  kvHeads: number;
  d4: number;
  aStride4: number;
  cacheLength: number;
  outStride4: number;
  sStride: number;
  slots: number;
}

/** Records the gradient in the form that suits the device; the bits are the same in all. */
export function recordAttentionKvGradient(
  r: Recorder,
  views: readonly View[],
  params: AttentionKvGradientParams & Record<string, number>,
): void {
  const { slots, cacheLength, kvHeads, d4, outStride4 } = params;
  const lanes = lanesGrid(slots, cacheLength, kvHeads, d4);
  if (r.variant === 'lanes' && lanes[1] <= 65_535) r.dispatch(attentionKvGradientLanes, views, params, lanes);
  else r.dispatch(attentionKvGradient, views, params, attentionKvGradientGrid(slots, cacheLength, outStride4));
}
