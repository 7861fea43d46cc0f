// s[r, h, j] = scale * <a[r, h], b[slot, j, kv(h)]> for j up to the row's position: scores, and gradients of probabilities.
// Not a softmax. Invariant: an entry's bits depend on its row and its cache entry alone.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
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

const tiles = [1, 2, 4, 8].map((PAIRS) => ({ PAIRS }));

/** Grid of the lanes form: eight lanes of four keys in x; key-value heads times tiles of pairs in y. */
function lanesGrid(
  rows: number,
  heads: number,
  kvHeads: number,
  keys: number,
  pairs: number,
): [number, number, number] {
  return [ceilDiv(keys, 32), kvHeads * ceilDiv((rows * heads) / kvHeads, pairs), 1];
}

/** The same for software adapters: rows and heads that share cache entries share their loads. */
export const attentionScoresLanes: QualifiedKernel = {
  ...attentionScores,
  name: 'attention-scores-lanes',
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
          grid: lanesGrid(rows, heads, kvHeads, shape.cacheLength, constants.PAIRS),
        };
      }),
    ),
};

/** The scalars of `attention-scores`. */
export interface AttentionScoresParams {
  rows: number;
  rowOffset: number;
  heads: number;
  kvHeads: number;
  d4: number;
  aStride4: number;
  cacheLength: number;
  bStride4: number;
  sStride4: number;
  scale: number;
}

/**
 * Records scores in the form that suits the device; the bits are the same in all. `together`: rows of a slot that come
 * one after the other, on average; it decides only how they are cut into tiles.
 */
export function recordAttentionScores(
  r: Recorder,
  views: readonly View[],
  params: AttentionScoresParams & Record<string, number>,
  keys: number,
  together: number,
): void {
  const { rows, heads, kvHeads } = params;
  if (r.variant !== 'lanes' || kvHeads * rows * (heads / kvHeads) > 65_535) {
    r.dispatch(attentionScores, views, params, attentionScoresGrid(rows, heads, keys));
    return;
  }
  const constants = pairsOf(heads / kvHeads, together);
  r.dispatch(attentionScoresLanes, views, params, lanesGrid(rows, heads, kvHeads, keys, constants.PAIRS), constants);
}

/** The tile for a number of query heads a key-value head and of neighbouring rows: the largest of 1, 2, 4, 8 in both. */
export function pairsOf(group: number, together: number): { PAIRS: number } {
  return tiles.findLast(({ PAIRS }) => PAIRS <= group * Math.max(1, together)) ?? tiles[0]!;
}
