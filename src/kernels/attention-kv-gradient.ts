// out[slot, j, kv] += sum over rows and heads of s[r, h, j] * a[r, h]: the gradients of cached keys and values.
// Invariant: each output is owned by one thread, which goes through rows and heads in order; no atomics.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
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
