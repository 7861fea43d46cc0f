// The forward product of few rows by subgroup matrices, made to stream the weights once.
// Not another policy than matrix-matmul. Invariant: its outputs have that kernel's bits.
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { forwardBindings, forwardCase, forwardParams } from './matrix-cases.ts';

/** At most 64 rows: the weights are streamed once. */
export const matrixMatmulLow: QualifiedKernel = {
  name: 'matrix-matmul-low',
  bindings: forwardBindings,
  params: forwardParams,
  constants: { TILE_M: 16, TILE_N: 64, TILE_K: 128, PANELS: 1 },
  cases: () => [
    forwardCase(1, 1, 64, 0, { TILE_M: 16, TILE_N: 64, TILE_K: 64 }),
    forwardCase(16, 257, 128, 0, { TILE_M: 16, TILE_N: 64, TILE_K: 128 }),
    forwardCase(5, 70, 192, 1, { TILE_M: 16, TILE_N: 64, TILE_K: 64 }),
    forwardCase(5, 70, 192, 2, { TILE_M: 16, TILE_N: 64, TILE_K: 64 }),
    forwardCase(31, 66, 384, 1, { TILE_M: 32, TILE_N: 64, TILE_K: 128 }),
    forwardCase(50, 130, 256, 0, { TILE_M: 64, TILE_N: 64, TILE_K: 64 }),
    forwardCase(65, 60, 128, 1, { TILE_M: 64, TILE_N: 64, TILE_K: 64 }),
  ],
};
