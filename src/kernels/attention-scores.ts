// s[r, h, j] = scale * <a[r, h], b[slot, j, kv(h)]> for j up to the row's position: scores, and gradients of probabilities.
// Not a softmax. Invariant: an entry's bits depend on its row and its cache entry alone.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { type AttentionShape, attentionBatch, attentionShapes, eachScore, SumTable } from './attention-cases.ts';

/** Grid of `attention-scores` for the longest row (`keys` entries). */
export function attentionScoresGrid(rows: number, heads: number, keys: number): [number, number, number] {
  return [ceilDiv(keys, 64), ceilDiv(rows * heads, 4), 1];
}

function makeCase(shape: AttentionShape): KernelCase {
  const batch = attentionBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength } = batch;
  const scale = 1 / Math.sqrt(headDim);
  const sums = new SumTable(rows * heads * cacheLength);
  eachScore(batch, (s, a, b) => {
    for (let d = 0; d < headDim; d++) sums.add(s, Math.fround(scale) * batch.a[a + d]! * batch.b[b + d]!);
  });
  // Quads past the position stay untouched; the rest of the position's own quad is zero.
  for (let r = 0; r < rows; r++) {
    const quadEnd = (Math.floor(batch.meta[r * 2 + 1]! / 4) + 1) * 4;
    for (let h = 0; h < heads; h++)
      sums.values.fill(Number.NaN, (r * heads + h) * cacheLength + quadEnd, (r * heads + h + 1) * cacheLength);
  }
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
      bStride4: (kvHeads * headDim) / 4,
      sStride4: cacheLength / 4,
      scale,
    },
    grid: attentionScoresGrid(rows, heads, cacheLength),
    inputs: { meta: batch.meta, a: batch.a, b: batch.b },
    expected: { s: { values: sums.values, bounds: sums.bounds() } },
  };
}

export const attentionScores: QualifiedKernel = {
  name: 'attention-scores',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 'a', access: 'read' },
    { name: 'b', access: 'read' },
    { name: 's', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['rowOffset', 'u32'],
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['d4', 'u32'],
    ['aStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['bStride4', 'u32'],
    ['sStride4', 'u32'],
    ['scale', 'f32'],
  ],
  cases: () => attentionShapes.map(makeCase),
};
