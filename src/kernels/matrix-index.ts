// The registry of the matrix family's own kernels: qualified on adapters that have f16 subgroup matrices, besides the
// portable ones, which the rest of the forward pass still is. Data only.

import type { KernelFamily } from '../gpu/device.ts';
import type { QualifiedKernel } from '../gpu/kernel.ts';
import { attentionFlash } from './attention-flash.ts';
import { flashBackwardKernels } from './attention-flash-backward.ts';
import { attentionPartial } from './attention-partial.ts';
import { cacheFork } from './cache-fork.ts';
import { cacheRows } from './cache-rows.ts';
import { cacheRowsBackward } from './cache-rows-backward.ts';
import { kernels } from './index.ts';
import { logprobsBackwardPack } from './logprobs-backward-pack.ts';
import { loraDz } from './lora-dz.ts';
import { loraGradient } from './lora-gradient.ts';
import { loraTranspose } from './lora-transpose.ts';
import { matrixFew } from './matrix-few.ts';
import { matrixMatmul } from './matrix-matmul.ts';
import { matrixMatmulLora, matrixMatmulLoraWide } from './matrix-matmul-lora.ts';
import { matrixMatmulLow } from './matrix-matmul-low.ts';
import { matrixMatmulNarrow } from './matrix-matmul-narrow.ts';
import { matrixMatmulNn } from './matrix-matmul-nn.ts';
import { matrixMatmulNnLora } from './matrix-matmul-nn-lora.ts';
import { matrixPack } from './matrix-pack.ts';
import { matrixPlain } from './matrix-plain.ts';
import { matrixPlainNn } from './matrix-plain-nn.ts';
import { matrixRows } from './matrix-rows.ts';
import { matrixWeightScan } from './matrix-weight-scan.ts';
import { orderedSum } from './ordered-sum.ts';

export const matrixKernels: readonly QualifiedKernel[] = [
  matrixWeightScan,
  matrixPack,
  matrixRows,
  matrixMatmul,
  matrixMatmulLow,
  matrixMatmulNarrow,
  matrixMatmulNn,
  matrixMatmulLora,
  matrixMatmulLoraWide,
  ...matrixFew,
  matrixPlain,
  matrixMatmulNnLora,
  matrixPlainNn,
  loraTranspose,
  loraDz,
  loraGradient,
  orderedSum,
  logprobsBackwardPack,
  cacheRows,
  cacheRowsBackward,
  cacheFork,
  attentionPartial,
  attentionFlash,
  ...flashBackwardKernels,
];

/** The feature that the family needs, by the name that Dawn gives it until the standard has one. */
export const matrixFeature = 'chromium-experimental-subgroup-matrix';

/** Every kernel that a family runs: the rest of the matrix family's forward and backward pass is portable. */
export function familyKernels(family: KernelFamily): readonly QualifiedKernel[] {
  return family === 'matrix' ? [...kernels, ...matrixKernels] : kernels;
}
