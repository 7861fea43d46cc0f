// The gradient of cache-rows with respect to the raw q, k and v of a row: qk-norm-rope-backward for the fused pass.
// Not its bits: several threads share a head. Invariant: bits depend on the row alone.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import type { HeadShape } from './qk-norm-rope.ts';
import { gradientCase, qkNormRopeBackward } from './qk-norm-rope-backward.ts';

/** Heads of a workgroup. */
const HEADS = 4;

const gridOf = (rows: number, { heads, kvHeads }: HeadShape) =>
  foldedGrid(ceilDiv(rows * (heads + 2 * kvHeads), HEADS));

const known = new Map<number, Record<string, number>>();

/** One object for each combination, so that pipelines are found by identity. */
function constantsOf(headDim: number, norm: boolean): Record<string, number> {
  const key = headDim * 2 + (norm ? 1 : 0);
  let constants = known.get(key);
  if (!constants) known.set(key, (constants = { NORM: norm ? 1 : 0, LANES: headDim / 8 }));
  return constants;
}

const shapes: readonly [HeadShape, number, boolean][] = [
  [{ heads: 2, kvHeads: 1, headDim: 16 }, 1, true],
  [{ heads: 4, kvHeads: 2, headDim: 64 }, 5, true],
  [{ heads: 3, kvHeads: 3, headDim: 128 }, 3, true],
  [{ heads: 2, kvHeads: 2, headDim: 32 }, 4, false],
];

export const cacheRowsBackward: QualifiedKernel = {
  ...qkNormRopeBackward,
  name: 'cache-rows-backward',
  constants: { NORM: 1, LANES: 16 },
  cases: () =>
    shapes.map(([shape, rows, norm]) => ({
      ...gradientCase(shape, rows, norm),
      grid: gridOf(rows, shape),
      constants: constantsOf(shape.headDim, norm),
    })),
};

/** Records the gradient. Views and scalars as for `qkNormRopeBackward`; headDim is a multiple of 16. */
export function recordCacheRowsBackward(
  r: Recorder,
  views: readonly View[],
  params: HeadShape & { rows: number } & Record<string, number>,
  norm: boolean,
): void {
  r.dispatch(cacheRowsBackward, views, params, gridOf(params.rows, params), constantsOf(params.headDim, norm));
}
