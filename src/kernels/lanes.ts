// How the `lanes` kernels cut a product into workgroups of one subgroup, and their cases.
// Not a kernel. Invariant: the cut changes no bit; it follows from the shape alone.
import { ceilDiv, constantsOnce, type KernelCase } from '../gpu/kernel.ts';

/** Columns up to which a lane takes one column instead of four: then few lanes are idle. */
const NARROW_COLUMNS = 24;

/** Constants and grid of `matmul-lanes` and `matmul-nn-lanes`: eight lanes of four columns (or one), 1, 4 or 8 rows. */
export function lanesShape(
  rows: number,
  columns: number,
  mode: number,
  bf16: boolean,
): { constants: Record<string, number>; grid: [number, number, number] } {
  const perThread = rows === 1 ? 1 : rows <= 4 ? 4 : 8;
  return cut(rows, columns, mode, bf16, perThread, columns <= NARROW_COLUMNS);
}

function cut(rows: number, columns: number, mode: number, bf16: boolean, perThread: number, narrow: boolean) {
  const quads = columns % 4 === 0;
  const grid: [number, number, number] = [ceilDiv(columns, narrow ? 8 : 32), ceilDiv(rows, perThread), 1];
  return { constants: constantsOf(perThread, mode, bf16, narrow, quads), grid };
}

const once = constantsOnce<number>();

function constantsOf(perThread: number, mode: number, bf16: boolean, narrow: boolean, quads: boolean) {
  const key = (perThread * 4 + mode) * 8 + (bf16 ? 4 : 0) + (narrow ? 2 : 0) + (quads ? 1 : 0);
  return once(key, () => ({
    ROWS: perThread,
    MODE: mode,
    BF16: bf16 ? 1 : 0,
    NARROW: narrow ? 1 : 0,
    QUADS: quads ? 1 : 0,
  }));
}

/** Cases of a plain product in every cut of the lanes form. */
export function lanesCases(cases: readonly KernelCase[]): KernelCase[] {
  return cases.flatMap((run) => {
    const { rows, columns, mode } = run.params as { rows: number; columns: number; mode: number };
    const bf16 = run.constants?.['BF16'] === 1;
    const stem = run.name.replace(/ rows\/thread \d+$/, '');
    const cuts: [number, boolean][] = [
      [1, false],
      [4, true],
      [8, columns <= NARROW_COLUMNS],
    ];
    return cuts.map(([perThread, narrow]) => ({
      ...run,
      name: `${stem} rows/lane ${perThread}${narrow ? ' narrow' : ''}`,
      ...cut(rows, columns, mode, bf16, perThread, narrow),
    }));
  });
}
