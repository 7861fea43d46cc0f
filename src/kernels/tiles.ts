// How the `tiles` kernels cut a product into workgroups, and their cases.
// Not a kernel. Invariant: the cut changes no bit; a product of few rows and one of many give the same rows.
import { ceilDiv, foldedGrid, type KernelCase } from '../gpu/kernel.ts';

/** Rows up to which `matmul-skinny` is faster than a tile of 128 rows. */
export const SKINNY_ROWS = 16;

const tiled = [{ BF16: 0 }, { BF16: 1 }] as const;
const skinny = [0, 1].map((BF16) => [1, 2, 4].map((ROWS) => ({ BF16, ROWS, LEFT: 128 * ROWS })));

/** Constants and grid of `matmul-tiled` and `matmul-nn-tiled`: 128 x 128 outputs a workgroup. */
export function tiledShape(rows: number, columns: number, bf16: boolean) {
  const grid: [number, number, number] = [ceilDiv(columns, 128), ceilDiv(rows, 128), 1];
  return { constants: tiled[bf16 ? 1 : 0], grid };
}

/** Constants and grid of `matmul-skinny`: sixteen columns a workgroup, at most sixteen rows. */
export function skinnyShape(rows: number, columns: number, bf16: boolean) {
  const constants = skinny[bf16 ? 1 : 0]![rows <= 4 ? 0 : rows <= 8 ? 1 : 2]!;
  return { constants, grid: foldedGrid(ceilDiv(columns, 16)) };
}

const stem = (run: KernelCase) => run.name.replace(/ rows\/thread \d+$/, '');

/** Cases of a plain product for the tiled form. */
export function tiledCases(cases: readonly KernelCase[]): KernelCase[] {
  return cases.map((run) => {
    const { rows, columns } = run.params as { rows: number; columns: number };
    return { ...run, name: stem(run), ...tiledShape(rows, columns, run.constants?.['BF16'] === 1) };
  });
}

/** Cases of a plain product of few rows for the skinny form. */
export function skinnyCases(cases: readonly KernelCase[]): KernelCase[] {
  return cases
    .filter((run) => run.params['rows']! <= SKINNY_ROWS)
    .map((run) => {
      const { rows, columns } = run.params as { rows: number; columns: number };
      return { ...run, name: stem(run), ...skinnyShape(rows, columns, run.constants?.['BF16'] === 1) };
    });
}
