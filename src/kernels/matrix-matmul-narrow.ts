// The forward product of few rows by a small matrix: narrow tiles, so that the device has enough workgroups.
// Not another policy than matrix-matmul. Invariant: its outputs have that kernel's bits.
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { forwardBindings, forwardCase, forwardParams } from './matrix-cases.ts';

/** At most 64 rows and few columns: narrow tiles give a small matrix enough workgroups. k is a multiple of 256. */
export const matrixMatmulNarrow: QualifiedKernel = {
  name: 'matrix-matmul-narrow',
  bindings: forwardBindings,
  params: forwardParams,
  constants: { PANELS: 1 },
  cases: () => [
    forwardCase(1, 1, 256, 0, 'narrow'),
    forwardCase(7, 35, 512, 0, 'narrow'),
    forwardCase(3, 33, 768, 1, 'narrow'),
    forwardCase(18, 40, 256, 2, 'narrow'),
    forwardCase(16, 18, 2048, 0, 'narrow'),
  ],
};
