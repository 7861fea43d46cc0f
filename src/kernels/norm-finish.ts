// The gradient norm and the clip coefficient from the block sums, by the fixed binary tree.
// Not finite where the gradient is not: the host reads the norm before it trusts the update.
// Invariant: the pairs depend on the number of blocks alone, as in src/grpo/tree.ts.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';

/** Scalars of `norm-finish`; `maxNorm` 0 switches clipping off. Its grid is one workgroup. */
export function normFinishParams(blocks: number, maxNorm: number): Record<string, number> {
  return { blocks, levels: Math.ceil(Math.log2(blocks)), maxNorm };
}

/**
 * The definition in f64: [norm, coefficient]. Bound: one rounding a level, halved by the root, which is 1 / inverseSqrt
 * (2 ULP, and 2.5 for the division); the coefficient adds one division and one sum.
 */
export function normFinishReference(partial: Float32Array, maxNorm: number) {
  const norm = Math.sqrt(partial.reduce((sum, value) => sum + value, 0));
  const levels = Math.ceil(Math.log2(partial.length));
  const relative = (levels / 2 + 9) * unit;
  const coefficient = maxNorm === 0 ? 1 : Math.min(1, maxNorm / (norm + 1e-6));
  return {
    values: Float64Array.of(norm, coefficient),
    bounds: Float64Array.of(norm * relative + 1e-37, maxNorm === 0 ? 0 : coefficient * (relative + 7 * unit)),
  };
}

function makeCase(blocks: number, maxNorm: number, scale: number): KernelCase {
  const partial = testValues(blocks, 61, scale).map(Math.abs);
  return {
    name: `${blocks} blocks of scale ${scale}, max norm ${maxNorm}`,
    params: normFinishParams(blocks, maxNorm),
    grid: [1, 1, 1],
    inputs: { partial },
    expected: { clip: normFinishReference(partial, maxNorm) },
  };
}

export const normFinish: QualifiedKernel = {
  name: 'norm-finish',
  bindings: [
    { name: 'partial', access: 'read_write' },
    { name: 'clip', access: 'read_write' },
  ],
  params: [
    ['blocks', 'u32'],
    ['levels', 'u32'],
    ['maxNorm', 'f32'],
  ],
  cases: () => [
    makeCase(1, 1, 1e-4),
    makeCase(1, 0, 9),
    makeCase(2, 1, 1),
    makeCase(3, 0.5, 1e6),
    makeCase(63, 1, 1),
    makeCase(64, 1, 1e-9),
    makeCase(65, 2, 1e20),
    makeCase(267, 1, 40),
  ],
};
