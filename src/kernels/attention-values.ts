// out[r, h] = sum_j s[r, h, j] * b[slot, j, kv(h)]: the attention output, and the gradient of the queries.
// Invariant: keys ascending, one accumulator an output; a row's bits depend on the row and its cache alone.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { type AttentionShape, attentionBatch, attentionShapes, eachScore, SumTable } from './attention-cases.ts';
import { pairsOf } from './attention-scores.ts';

/** Grid of `attention-values`: one thread a (row, head, four dimensions). */
export function attentionValuesGrid(rows: number, heads: number, d4: number): [number, number, number] {
  return foldedGrid(ceilDiv(rows * heads * d4, 64));
}

function makeCase(shape: AttentionShape): KernelCase {
  const batch = attentionBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength } = batch;
  const sums = new SumTable(rows * heads * headDim);
  eachScore(batch, (s, a, b) => {
    for (let d = 0; d < headDim; d++) sums.add(a + d, batch.s[s]! * batch.b[b + d]!);
  });
  return {
    name: `${rows} rows, ${heads}/${kvHeads} heads of ${headDim}`,
    params: {
      rows,
      rowOffset: 0,
      heads,
      kvHeads,
      d4: headDim / 4,
      outStride4: (heads * headDim) / 4,
      cacheLength,
      bStride4: (kvHeads * headDim) / 4,
      sStride4: cacheLength / 4,
    },
    grid: attentionValuesGrid(rows, heads, headDim / 4),
    inputs: { meta: batch.meta, s: batch.s, b: batch.b },
    expected: { out: { values: sums.values, bounds: sums.bounds() } },
  };
}

export const attentionValues: QualifiedKernel = {
  name: 'attention-values',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 's', access: 'read' },
    { name: 'b', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['rowOffset', 'u32'],
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['d4', 'u32'],
    ['outStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['bStride4', 'u32'],
    ['sStride4', 'u32'],
  ],
  cases: () => attentionShapes.map(makeCase),
};

const tiles = [1, 2, 4, 8].map((PAIRS) => ({ PAIRS }));

/** Grid of the lanes form: eight lanes of four dimensions in x; key-value heads times tiles of pairs in y. */
function lanesGrid(rows: number, heads: number, kvHeads: number, d4: number, pairs: number): [number, number, number] {
  return [ceilDiv(d4, 8), kvHeads * ceilDiv((rows * heads) / kvHeads, pairs), 1];
}

/** The same for software adapters: rows and heads that share cache entries share their loads. */
export const attentionValuesLanes: QualifiedKernel = {
  ...attentionValues,
  name: 'attention-values-lanes',
  constants: { PAIRS: 8 },
  needs: 'subgroups-of-8',
  cases: () =>
    attentionShapes.flatMap((shape) =>
      tiles.map((constants) => {
        const run = makeCase(shape);
        const { heads, kvHeads } = shape;
        const rows = run.params['rows']!;
        return {
          ...run,
          name: `${run.name}, ${constants.PAIRS} pairs a tile`,
          constants,
          grid: lanesGrid(rows, heads, kvHeads, shape.headDim / 4, constants.PAIRS),
        };
      }),
    ),
};

/** The scalars of `attention-values`. */
export interface AttentionValuesParams {
  rows: number;
  rowOffset: number;
  heads: number;
  kvHeads: number;
  d4: number;
  outStride4: number;
  cacheLength: number;
  bStride4: number;
  sStride4: number;
}

/** Records weighted sums in the form that suits the device; see `recordAttentionScores`. */
export function recordAttentionValues(
  r: Recorder,
  views: readonly View[],
  params: AttentionValuesParams & Record<string, number>,
  together: number,
): void {
  const { rows, heads, kvHeads, d4 } = params;
  if (r.variant !== 'lanes' || kvHeads * rows * (heads / kvHeads) > 65_535) {
    r.dispatch(attentionValues, views, params, attentionValuesGrid(rows, heads, d4));
    return;
  }
  const constants = pairsOf(heads / kvHeads, together);
  r.dispatch(attentionValuesLanes, views, params, lanesGrid(rows, heads, kvHeads, d4, constants.PAIRS), constants);
}
