// Softmax over the keys up to each row's position, in place.
// Invariant: the largest score is subtracted first, so nothing overflows; a row's bits depend on that row alone.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { type AttentionShape, attentionBatch, attentionShapes } from './attention-cases.ts';
import { unit } from './case-data.ts';

/** Grid of the kernels with one thread a (row, head). */
export function rowHeadGrid(rows: number, heads: number): [number, number, number] {
  return foldedGrid(ceilDiv(rows * heads, 64));
}

function makeCase(shape: AttentionShape): KernelCase {
  const batch = attentionBatch(shape);
  const { rows, heads, cacheLength } = batch;
  const scores = batch.s.map((v) => v * 20);
  const values = Float64Array.from(scores);
  const bounds = new Float64Array(values.length);
  for (let r = 0; r < rows; r++) {
    const length = batch.meta[r * 2 + 1]! + 1;
    for (let h = 0; h < heads; h++) {
      const base = (r * heads + h) * cacheLength;
      const row = scores.subarray(base, base + length);
      const top = Math.max(...row);
      const exps = Array.from(row, (v) => Math.exp(v - top));
      const sum = exps.reduce((a, b) => a + b, 0);
      for (let j = 0; j < length; j++) {
        values[base + j] = exps[j]! / sum;
        // exp: (3 + 2|x|) ULP and the rounding of its argument, for the entry and (weighted, so at most) for the sum.
        const x = Math.abs(row[j]! - top);
        const weighted = exps.reduce((acc, e, i) => acc + (e / sum) * (6 + 5 * Math.abs(row[i]! - top)), 0);
        bounds[base + j] = (6 + 5 * x + weighted + length + 8) * unit * values[base + j]! + 1e-37;
      }
    }
  }
  return {
    name: `${rows} rows, ${heads} heads, ${cacheLength} keys`,
    params: { rows, rowOffset: 0, heads, sStride: cacheLength },
    grid: rowHeadGrid(rows, heads),
    inputs: { meta: batch.meta, s: scores },
    expected: { s: { values, bounds } },
  };
}

export const attentionSoftmax: QualifiedKernel = {
  name: 'attention-softmax',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 's', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['rowOffset', 'u32'],
    ['heads', 'u32'],
    ['sStride', 'u32'],
  ],
  cases: () => attentionShapes.map(makeCase),
};

/** The same for GPUs: one workgroup a (row, head). */
export const attentionSoftmaxWide: QualifiedKernel = {
  ...attentionSoftmax,
  name: 'attention-softmax-wide',
  cases: () =>
    attentionSoftmax.cases().map((run) => ({ ...run, grid: foldedGrid(run.params['rows']! * run.params['heads']!) })),
};

/** Records the softmax of `rows` rows in the form that suits the device; the bits are the same in all. */
export function recordAttentionSoftmax(
  r: Recorder,
  views: readonly View[],
  params: { rows: number; heads: number } & Record<string, number>,
): void {
  const { rows, heads } = params;
  if (r.variant === 'tiles') r.dispatch(attentionSoftmaxWide, views, params, foldedGrid(rows * heads));
  else r.dispatch(attentionSoftmax, views, params, rowHeadGrid(rows, heads));
}
