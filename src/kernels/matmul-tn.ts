// out[i, j] = sum_m a[m, i] * b[m, j]: the gradients of LoRA's A and B over the tokens of a micro-batch.
// Invariant: one accumulator an output, tokens in batch order.
import { ceilDiv, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, withStride } from './case-data.ts';
import { matmulMode, matmulReference } from './matmul.ts';

/** Grid of `matmul-tn`: a thread owns 4 x 4 outputs; 64 threads of four j in x, four i in y. */
export function matmulTnGrid(iCount: number, jCount: number): [number, number, number] {
  return [ceilDiv(jCount, 256), ceilDiv(iCount, 4), 1];
}

function makeCase(rows: number, iCount: number, jCount: number, mode: number): KernelCase {
  const a = testValues(rows * iCount, 61);
  const b = testValues(rows * jCount, 62);
  const left = new Float32Array(iCount * rows);
  const right = new Float32Array(jCount * rows);
  for (let m = 0; m < rows; m++) {
    for (let i = 0; i < iCount; i++) left[i * rows + m] = a[m * iCount + i]!;
    for (let j = 0; j < jCount; j++) right[j * rows + m] = b[m * jCount + j]!;
  }
  const initial = mode === matmulMode.overwrite ? null : testValues(iCount * jCount, 63);
  const shape = { rows: iCount, columns: jCount, k: rows, mode, scale: 1.5 };
  return {
    name: `${iCount}x${jCount} over ${rows} mode ${mode}`,
    params: {
      rows,
      iCount,
      jCount,
      aStride4: padded(iCount) / 4,
      aOffset4: 0,
      bStride4: padded(jCount) / 4,
      bOffset4: 0,
      outStride: jCount,
      outOffset: 0,
      mode,
      scale: 1.5,
    },
    grid: matmulTnGrid(iCount, jCount),
    inputs: {
      a: withStride(a, rows, iCount, padded(iCount)),
      b: withStride(b, rows, jCount, padded(jCount)),
      ...(initial ? { out: initial } : {}),
    },
    expected: { out: matmulReference(left, right, initial, shape) },
  };
}

export const matmulTn: QualifiedKernel = {
  name: 'matmul-tn',
  bindings: [
    { name: 'a', access: 'read' },
    { name: 'b', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['iCount', 'u32'],
    ['jCount', 'u32'],
    ['aStride4', 'u32'],
    ['aOffset4', 'u32'],
    ['bStride4', 'u32'],
    ['bOffset4', 'u32'],
    ['outStride', 'u32'],
    ['outOffset', 'u32'],
    ['mode', 'u32'],
    ['scale', 'f32'],
  ],
  cases: () => [makeCase(1, 1, 1, 0), makeCase(65, 16, 63, 0), makeCase(130, 5, 257, 0), makeCase(300, 33, 9, 2)],
};
