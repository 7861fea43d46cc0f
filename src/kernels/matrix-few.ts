// A fused linear layer with its LoRA for at most 64 rows: decoding. matrix-matmul-lora's twin in bits, a kernel a tile.
// Not for prefill or training. Invariant: an output has the bits that matrix-matmul-lora gives it, in every tile.
import { constantsOnce, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { type FewPlan, type FewTile, fewGrid, fewTiles, roundOf } from './matrix-few-tiles.ts';
import { loraProductCase, matrixMatmulLora } from './matrix-matmul-lora.ts';

/** Pipeline constants of a product of `k` terms and a stored rank, a multiple of four; rank 0: no LoRA term. */
export function fewConstants({ tile, late }: FewPlan, k: number, rank: number) {
  const made = () => ({ ROUNDS: k / roundOf(tile), RANK4: rank / 4, LATE: late ? 1 : 0 });
  return once(`${tile.name} ${late} ${k} ${rank}`, made);
}

const once = constantsOnce<string>();

function casesOf(few: FewTile): KernelCase[] {
  const round = roundOf(few);
  const half = few.rows / 2;
  const run = (
    late: boolean,
    [rows, columns, k]: [number, number, number],
    mode: number,
    rank: number,
    splits: number[] = [],
  ): KernelCase => {
    const made = loraProductCase(rows, columns, k, mode, rank, splits);
    const constants = fewConstants({ tile: few, late }, k, rank);
    return { ...made, name: `${made.name}${late ? ' late' : ''}`, constants, grid: fewGrid(few, columns) };
  };
  return [
    run(false, [1, few.columns, round], 0, 0),
    run(false, [few.rows, 2 * few.columns + 4, round], 2, 16, [few.columns]),
    run(true, [few.rows, 2 * few.columns + 4, round], 2, 16, [few.columns]),
    run(true, [half + 1, 3 * few.columns - 4, 2 * round], 0, 4, [8, few.columns + 4]),
    run(false, [half - 1, few.columns + 3, 3 * round], 2, 0),
  ];
}

/** The kernels by tile. Views and scalars as for `matrixMatmulLora`. */
export const matrixFew: readonly QualifiedKernel[] = fewTiles.map((few) => ({
  ...matrixMatmulLora,
  name: `matrix-few-${few.name}`,
  constants: { ROUNDS: 1, RANK4: 0, LATE: 0 },
  cases: () => casesOf(few),
}));

/** The kernel of a tile. */
export function fewKernel(few: FewTile): QualifiedKernel {
  return matrixFew[fewTiles.findIndex((candidate) => candidate.name === few.name)]!;
}
