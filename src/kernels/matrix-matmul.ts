// out[m, n] = sum_k x[m, k] * w[n, k] with subgroup matrices: f16 operands, one f32 accumulator an output, k ascending.
// Not for adapters without f16 subgroup matrices of 16x16x16. Invariant: an output's bits depend on its row of packed x and
// its row of w alone: the tile, the row's position and the number of rows do not matter.
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { forwardBindings, forwardCase, forwardParams } from './matrix-cases.ts';

/** Any number of rows; made for many. */
export const matrixMatmul: QualifiedKernel = {
  name: 'matrix-matmul',
  bindings: forwardBindings,
  params: forwardParams,
  constants: { SUBS: 4, PANELS: 1 },
  cases: () => [
    forwardCase(130, 257, 128, 0, 'tall'),
    forwardCase(129, 131, 64, 1, 'tall'),
    forwardCase(140, 140, 192, 2, 'tall'),
    forwardCase(16, 24, 2048, 0, 'tall'),
  ],
};
