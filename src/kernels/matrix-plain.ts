// matrix-matmul-lora's product for adapters without subgroup matrices: same operands and roundings, other bits.
// Not fast, and not a kernel of a run: it lets tests run the matrix family's pass on every adapter.
import { ceilDiv, type QualifiedKernel } from '../gpu/kernel.ts';
import { loraProductCase, matrixMatmulLora } from './matrix-matmul-lora.ts';

/** Grid of `matrix-plain`: four columns a thread in x, rows in y. */
export function plainGrid(rows: number, columns: number): [number, number, number] {
  return [ceilDiv(columns, 32), ceilDiv(rows, 8), 1];
}

/** Views, scalars and constants as for `matrixMatmulLora`. */
export const matrixPlain: QualifiedKernel = {
  ...matrixMatmulLora,
  name: 'matrix-plain',
  constants: { PANELS: 1, RANK4: 0 },
  cases: () =>
    [
      loraProductCase(3, 41, 128, 0, 16, [8]),
      loraProductCase(9, 36, 64, 2, 4, [12, 20]),
      loraProductCase(2, 34, 192, 2, 0, []),
    ].map((run) => ({ ...run, grid: plainGrid(run.params['rows']!, run.params['columns']!) })),
};
