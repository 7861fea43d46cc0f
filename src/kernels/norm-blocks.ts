// Sums of squares of fixed blocks of a flat gradient: the leaves of the norm's tree.
// Not the norm: see norm-finish. Invariant: a block's bits depend on its 65,536 elements alone.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';

/** Elements of one block of the gradient norm. */
export const normBlock = 65_536;

/** Number of blocks of a buffer of `count` elements. */
export function normBlocksOf(count: number): number {
  return ceilDiv(count, normBlock);
}

/** The definition in f64; all terms are >= 0, so the chain of a lane and that of the 256 lanes bound the error. */
export function normBlocksReference(x: Float32Array): { values: Float64Array; bounds: Float64Array } {
  const values = new Float64Array(normBlocksOf(x.length));
  for (let i = 0; i < x.length; i++) values[Math.floor(i / normBlock)]! += x[i]! ** 2;
  const bounds = values.map((value, b) => {
    const length = Math.min(normBlock, x.length - b * normBlock);
    return value * (Math.ceil(length / 256) + 256 + 1) * unit + 1e-37;
  });
  return { values, bounds };
}

function makeCase(count: number, scale: number, equal = false): KernelCase {
  const x = testValues(count, 51, scale);
  if (equal) x.fill(scale);
  const offset = 3;
  const blockOffset = 1;
  const { values, bounds } = normBlocksReference(x);
  const shifted = new Float32Array(offset + count).fill(1e15);
  shifted.set(x, offset);
  const blocks = normBlocksOf(count);
  return {
    name: `${count} elements of scale ${scale}${equal ? ', all equal' : ''}`,
    params: { count, offset, blocks, blockOffset },
    grid: foldedGrid(blocks),
    inputs: { x: shifted },
    expected: {
      partial: { values: Float64Array.from([Number.NaN, ...values]), bounds: Float64Array.from([0, ...bounds]) },
    },
  };
}

/** `partial`[blockOffset + b] = sum of squares of block b of x[offset .. offset + count). */
export const normBlocks: QualifiedKernel = {
  name: 'norm-blocks',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'partial', access: 'read_write' },
  ],
  params: [
    ['count', 'u32'],
    ['offset', 'u32'],
    ['blocks', 'u32'],
    ['blockOffset', 'u32'],
  ],
  cases: () => [
    makeCase(1, 1),
    makeCase(255, 1e-3),
    makeCase(257, 1),
    makeCase(normBlock - 1, 1),
    makeCase(normBlock, 0.1, true),
    makeCase(normBlock + 1, 1e12),
    makeCase(3 * normBlock + 777, 1e-6),
  ],
};
