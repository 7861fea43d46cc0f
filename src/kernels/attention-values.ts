// out[r, h] = sum_j s[r, h, j] * b[slot, j, kv(h)]: the attention output, and the gradient of the queries.
// Invariant: keys ascending, one accumulator an output; a row's bits depend on the row and its cache alone.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { type AttentionShape, attentionBatch, attentionShapes, eachScore, SumTable } from './attention-cases.ts';

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
