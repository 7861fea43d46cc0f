// The tiles of the products of few rows, and which one a product takes.
// Not a numeric choice: every tile sums k in the same order, so its outputs have the same bits. Invariant: the choice
// depends on the product's shape alone. The figures that chose them are in docs/kernels-matrix.md.
import { ceilDiv } from '../gpu/kernel.ts';

export interface FewTile {
  /** The shader's name after `matrix-few-`. */
  readonly name: string;
  /** Subgroups of 32 lanes in a workgroup. */
  readonly subgroups: 3 | 4 | 6 | 8;
  /** Outputs of a workgroup: rows at most, columns. */
  readonly rows: 8 | 16 | 64;
  readonly columns: 16 | 32;
  /** Terms of a stage, and how many stages' loads are on the way while as many are multiplied. */
  readonly panel: number;
  readonly ahead: 1 | 2;
  /** Accumulators of a subgroup that multiplies: blocks of rows, one below the other. */
  readonly down: 1 | 2;
}

/** How a product runs: its tile, and whether LoRA's operands are fetched beside the weights or before them. */
export interface FewPlan {
  readonly tile: FewTile;
  readonly late: boolean;
}

/** Stages in one round of a tile's loop. */
export function stagesOf({ ahead }: FewTile): number {
  return Math.max(ahead, 2);
}

function tile(
  subgroups: FewTile['subgroups'],
  [rows, columns, panel]: [FewTile['rows'], FewTile['columns'], number],
  ahead: FewTile['ahead'],
  down: FewTile['down'] = 1,
): FewTile {
  return { name: `${rows}x${columns}x${panel}`, subgroups, rows, columns, panel, ahead, down };
}

export const fewTiles = [
  tile(8, [8, 16, 256], 2),
  tile(4, [8, 16, 128], 2),
  tile(3, [8, 16, 96], 2),
  tile(4, [8, 32, 32], 1),
  tile(8, [16, 16, 256], 2),
  tile(4, [16, 16, 128], 2),
  tile(6, [16, 16, 96], 2),
  tile(8, [16, 32, 128], 2),
  tile(4, [16, 32, 32], 1),
  tile(8, [64, 16, 128], 2, 2),
  tile(6, [64, 16, 96], 2, 2),
  tile(6, [64, 32, 96], 2, 2),
  tile(8, [64, 32, 64], 2, 2),
  tile(4, [64, 32, 32], 1, 2),
] as const satisfies readonly FewTile[];

/** Terms of one round of a tile's loop: k must be a multiple. */
export function roundOf(few: FewTile): number {
  return few.panel * stagesOf(few);
}

/** The largest number of rows that these kernels take. */
export const mostFewRows = 64;

/** Tiles in the order of preference: for few columns, and for more; the last ones take what the first cannot divide. */
const preferred: Record<FewTile['rows'], (columns: number) => string[]> = {
  8: (columns) => [...(columns <= 3072 ? ['8x16x256'] : []), '8x16x128', '8x16x96', '8x32x32'],
  16: (columns) => [
    ...(columns <= 3072 ? ['16x16x256', '16x16x128'] : [columns <= 6144 ? '16x16x128' : '16x32x128']),
    '16x16x96',
    '16x32x32',
  ],
  64: (columns) => [
    ...(columns <= 3072 ? ['64x16x128', '64x32x64'] : ['64x32x64']),
    // Up to 132 workgroups of 16 columns: one for each processor of the device that was measured.
    columns <= 2112 ? '64x16x96' : '64x32x96',
    '64x32x32',
  ],
};

/** How a product of at most 64 rows with `columns` rows of W and `k` (a multiple of 64) terms runs. */
export function fewPlan(rows: number, columns: number, k: number): FewPlan {
  const names = preferred[rows <= 8 ? 8 : rows <= 16 ? 16 : 64](columns);
  const tiles = names.map((name) => fewTiles.find((few) => few.name === name)!);
  const late = (rows <= 16 && columns <= 3072 && k > 2048) || (rows <= 8 && columns > 6144);
  return { tile: tiles.find((few) => k % roundOf(few) === 0)!, late };
}

/** Grid of a tile over `columns` columns; all rows are one workgroup's. */
export function fewGrid(few: FewTile, columns: number): [number, number, number] {
  return [ceilDiv(columns, few.columns), 1, 1];
}
