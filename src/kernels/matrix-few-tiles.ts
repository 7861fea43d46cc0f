// The tiles of the products of few rows, and which one a product takes.
// Not a numeric choice: every tile sums k in the same order, so its outputs have the same bits. Invariant: the choice
// depends on the product's shape alone. The figures that chose them are in docs/kernels-matrix.md.
import { ceilDiv } from '../gpu/kernel.ts';

export interface FewTile {
  /** The shader's name after `matrix-few-`. */
  readonly name: string;
  /** Lanes of a workgroup. */
  readonly threads: number;
  /** Outputs of a workgroup: rows at most, columns. */
  readonly rows: 4 | 16 | 64;
  readonly columns: 8 | 16 | 32 | 64;
  /** Terms staged at a time, and how many such panels a lane loads before it stores the first. */
  readonly panel: number;
  readonly ahead: number;
  /** Copies of the staged panel. */
  readonly buffers: 1 | 2;
  /** Groups of lanes that load panels in turn; 1: all lanes load each panel. */
  readonly turns: number;
  /** Accumulators of a subgroup that multiplies, one below the other. */
  readonly blocks: 1 | 2;
  /** Whether it reads the weights in panels, as `matrix-panels` writes them: [columns / 8, k / 256, 8, 256]. */
  readonly panels?: true;
}

const tile = (name: string, rest: Omit<FewTile, 'name'>): FewTile => ({ name, ...rest });

/** Rows of W and terms of a panel. */
export const panelRows = 8;
export const panelTerms = 256;

const inPanels = {
  threads: 256,
  columns: panelRows,
  panel: panelTerms,
  ahead: 2,
  buffers: 2,
  turns: 1,
  blocks: 1,
} as const;

export const fewTiles = [
  tile('4x8', { ...inPanels, rows: 4, panels: true }),
  tile('16x16', { threads: 256, rows: 16, columns: 16, panel: 256, ahead: 4, buffers: 2, turns: 1, blocks: 1 }),
  tile('16x32', { threads: 128, rows: 16, columns: 32, panel: 128, ahead: 1, buffers: 1, turns: 1, blocks: 1 }),
  tile('16x32-turns', { threads: 256, rows: 16, columns: 32, panel: 128, ahead: 1, buffers: 2, turns: 2, blocks: 1 }),
  tile('16x32-short', { threads: 128, rows: 16, columns: 32, panel: 64, ahead: 1, buffers: 1, turns: 1, blocks: 1 }),
  tile('64x16', { threads: 512, rows: 64, columns: 16, panel: 256, ahead: 1, buffers: 1, turns: 1, blocks: 1 }),
  tile('64x16-short', { threads: 256, rows: 64, columns: 16, panel: 128, ahead: 1, buffers: 1, turns: 1, blocks: 1 }),
  tile('64x32', { threads: 128, rows: 64, columns: 32, panel: 64, ahead: 1, buffers: 1, turns: 1, blocks: 2 }),
] as const;

export type FewTileName = (typeof fewTiles)[number]['name'];

/** Terms of one round of a tile's loop: k must be a multiple. */
export function roundOf(few: FewTile): number {
  return few.panel * Math.max(few.ahead, few.turns);
}

/** The largest number of rows that these kernels take. */
export const mostFewRows = 64;

/**
 * Whether products of few rows by a matrix of `columns` rows and `k` terms read it in panels: small ones, whose rows are
 * too few to keep the device busy sixteen at a time. Measured: docs/LOG.md.
 */
export function wantsPanels(columns: number, k: number): boolean {
  return columns <= 2048 && columns % panelRows === 0 && k % (panelTerms * inPanels.ahead) === 0;
}

/**
 * The tile for at most 64 rows, `columns` rows of W and `k` (a multiple of 64) terms.
 * `panels`: the weights are there in panels, too (`wantsPanels`).
 */
export function fewTile(rows: number, columns: number, k: number, panels: boolean): FewTile {
  if (panels && rows <= 4) return byName('4x8');
  const order: FewTileName[] =
    rows <= 16
      ? columns <= 2048
        ? ['16x16', '16x32-turns', '16x32', '16x32-short']
        : columns <= 6144
          ? ['16x32-turns', '16x32', '16x32-short']
          : ['16x32', '16x32-short']
      : columns <= 2048
        ? ['64x16', '64x16-short', '64x32']
        : columns <= 6144
          ? ['64x16-short', '64x32']
          : ['64x32'];
  const name = order.find((candidate) => k % roundOf(byName(candidate)) === 0)!;
  return byName(name);
}

function byName(name: FewTileName): FewTile {
  return fewTiles.find((candidate) => candidate.name === name)!;
}

/** Grid of a tile over `columns` columns; all rows are one workgroup's. */
export function fewGrid(few: FewTile, columns: number): [number, number, number] {
  return [ceilDiv(columns, few.columns), 1, 1];
}
