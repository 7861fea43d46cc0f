// The gradient of cache-rows with respect to the raw q, k and v of a row: qk-norm-rope-backward for the fused pass.
// Not its bits: several threads share a head. Invariant: bits depend on the row alone.
import type { View } from '../gpu/buffers.ts';
import type { QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { cacheRowsConstants, cacheRowsGrid } from './cache-rows.ts';
import type { HeadShape } from './qk-norm-rope.ts';
import { gradientCase, qkNormRopeBackward } from './qk-norm-rope-backward.ts';

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
      grid: cacheRowsGrid(rows, shape),
      constants: cacheRowsConstants(shape.headDim, norm),
    })),
};

/** Records the gradient. Views and scalars as for `qkNormRopeBackward`; headDim is a multiple of 16. */
export function recordCacheRowsBackward(
  r: Recorder,
  views: readonly View[],
  params: HeadShape & { rows: number } & Record<string, number>,
  norm: boolean,
): void {
  r.dispatch(
    cacheRowsBackward,
    views,
    params,
    cacheRowsGrid(params.rows, params),
    cacheRowsConstants(params.headDim, norm),
  );
}
