// The registry of the matrix family's own kernels: qualified on adapters that have f16 subgroup matrices, besides the
// portable ones, which the rest of the forward pass still is. Data only.
import type { KernelFamily } from '../gpu/device.ts';
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { kernels } from './index.ts';
import { matrixMatmul } from './matrix-matmul.ts';
import { matrixMatmulLow } from './matrix-matmul-low.ts';
import { matrixMatmulNarrow } from './matrix-matmul-narrow.ts';
import { matrixMatmulNn } from './matrix-matmul-nn.ts';
import { matrixPack } from './matrix-pack.ts';
import { matrixWeightScan } from './matrix-weight-scan.ts';

export const matrixKernels: readonly QualifiedKernel[] = [
  matrixWeightScan,
  matrixPack,
  matrixMatmul,
  matrixMatmulLow,
  matrixMatmulNarrow,
  matrixMatmulNn,
];

/** The feature that the family needs, by the name that Dawn gives it until the standard has one. */
export const matrixFeature = 'chromium-experimental-subgroup-matrix';

/** Every kernel that a family runs: the rest of the matrix family's forward and backward pass is portable. */
export function familyKernels(family: KernelFamily): readonly QualifiedKernel[] {
  return family === 'matrix' ? [...kernels, ...matrixKernels] : kernels;
}
