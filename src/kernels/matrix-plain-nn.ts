// matrix-matmul-nn-lora's product for adapters without subgroup matrices: same operands and roundings, other bits.
// Not fast, and not a kernel of a run: it lets tests run the matrix family's backward pass on every adapter.
import { ceilDiv, type QualifiedKernel } from '../gpu/kernel.ts';
import { matrixMatmulNnLora, nnLoraCase } from './matrix-matmul-nn-lora.ts';

/** Grid of `matrix-plain-nn`: four columns a thread in x, rows in y, slices in z. */
export function plainNnGrid(rows: number, columns: number, slices = 1): [number, number, number] {
  return [ceilDiv(columns, 32), ceilDiv(rows, 8), slices];
}

/** Views, scalars and constants as for `matrixMatmulNnLora`. */
export const matrixPlainNn: QualifiedKernel = {
  ...matrixMatmulNnLora,
  name: 'matrix-plain-nn',
  cases: () =>
    [
      nnLoraCase(3, 40, 130, 0, 16),
      nnLoraCase(9, 64, 64, 1, 36),
      nnLoraCase(5, 72, 128, 0, 0, 2),
      nnLoraCase(1, 8, 1, 0, 4),
    ].map((run) => ({ ...run, grid: plainNnGrid(run.params['rows']!, run.params['columns']!, run.grid[2]) })),
};
