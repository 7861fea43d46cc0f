// Tile shapes of the subgroup-matrix products, and which one a product takes.
// Not a numeric choice: every tile sums k in the same order, so its outputs have the same bits. Invariant: the choice
// depends on the product's shape alone.
import { ceilDiv } from '../gpu/kernel.ts';

/** Outputs of a workgroup of matrix-matmul-low, and the terms that it stages at a time. */
export interface LowTile {
  readonly TILE_M: 16 | 32 | 64;
  readonly TILE_N: 16 | 32 | 64;
  readonly TILE_K: number;
}

/** The kernel of a forward product: few rows and few columns, few rows, or many rows. */
export type ForwardKernel = 'narrow' | 'low' | 'tall';

/** Outputs of a workgroup of matrix-matmul-narrow in each direction, and the terms staged at a time. */
export const narrowTile = 16;
export const narrowPanel = 256;

/** Outputs of a workgroup of matrix-matmul and matrix-matmul-nn in each direction, and the terms staged at a time. */
export const tallTile = 128;
const tallPanel = 32;

/** Width of a packed row in elements: the sum's length, padded to the widest panel that the tall products take. */
export function packedWidth(k: number): number {
  return ceilDiv(k, 64) * 64;
}

/** The forward product's inner length must be a multiple of this; matrices of another width stay portable. */
export const matrixWidth = 64;

/** Rows of a workgroup of matrix-matmul-lora-wide, which has the tall ones' columns, and the terms staged at a time. */
export const wideTile = 192;
const widePanel = 64;

/** Workgroup memory of matrix-matmul-lora-wide, in bytes: rows of both operands, padded by eight elements. */
export const wideStorage = (wideTile + tallTile) * (widePanel + 8) * 2;

const panel = (k: number, largest: number): number => {
  let width = largest;
  while (k % width !== 0) width /= 2;
  return width;
};

/** The kernel of a product with `rows` rows of x, `columns` rows of W and `k` (a multiple of 64) terms. */
export function forwardKernel(rows: number, columns: number, k: number): ForwardKernel {
  if (rows > 64) return 'tall';
  // A small matrix needs narrow tiles, or most of the device stays idle.
  return columns <= 4096 && k % narrowPanel === 0 ? 'narrow' : 'low';
}

/** The tile of matrix-matmul-low for at most 64 rows and `k` terms. */
export function lowTile(rows: number, k: number): LowTile {
  if (rows > 32) return { TILE_M: 64, TILE_N: 64, TILE_K: 64 };
  return { TILE_M: rows > 16 ? 32 : 16, TILE_N: 64, TILE_K: panel(k, 128) };
}

/** Pipeline constants of matrix-matmul-low for a sum of `k` terms. */
export function lowConstants(tile: LowTile, k: number): Record<string, number> {
  return { ...tile, PANELS: k / tile.TILE_K };
}

/** Grid of matrix-matmul-low: columns in x, rows in y. */
export function lowGrid(tile: LowTile, rows: number, columns: number): [number, number, number] {
  return [ceilDiv(columns, tile.TILE_N), ceilDiv(rows, tile.TILE_M), 1];
}

/** Pipeline constants of matrix-matmul-narrow for a sum of `k` terms, a multiple of 256. */
export function narrowConstants(k: number): Record<string, number> {
  return { PANELS: k / narrowPanel };
}

/** Grid of matrix-matmul-narrow. */
export function narrowGrid(rows: number, columns: number): [number, number, number] {
  return [ceilDiv(columns, narrowTile), ceilDiv(rows, narrowTile), 1];
}

/** Pipeline constants of the tall products for a sum of `k` terms. */
export function tallConstants(k: number): Record<string, number> {
  return { PANELS: ceilDiv(k, tallPanel) };
}

/** Pipeline constants of the wide product for a sum of `k` terms. */
export function wideConstants(k: number): Record<string, number> {
  return { PANELS: k / widePanel };
}

/** Grid of the wide product over [rows, columns] outputs. */
export function wideGrid(rows: number, columns: number): [number, number, number] {
  return [ceilDiv(columns, tallTile), ceilDiv(rows, wideTile), 1];
}

/** Processors of the device that the forms were measured on (H100, H200); WebGPU does not say how many there are. */
const processors = 132;

/**
 * Whether the wide form takes less time for [rows, columns] outputs. A processor has room for two tall tiles or one wide
 * one, and a wave of tiles that is not full takes as long as a full one; a wide wave takes 0.83 to 0.9 of a tall one.
 * Products of a single tall wave keep the tall form: they were not measured.
 */
export function wideIsFaster(rows: number, columns: number): boolean {
  const waves = ([x, y]: readonly number[], resident: number) => ceilDiv(x! * y!, processors * resident);
  const tall = waves(tallGrid(rows, columns), 2);
  return tall > 1 && waves(wideGrid(rows, columns), 1) * 0.87 < tall;
}

/** Grid of the tall products over [rows, columns] outputs. */
export function tallGrid(rows: number, columns: number): [number, number, number] {
  return [ceilDiv(columns, tallTile), ceilDiv(rows, tallTile), 1];
}
