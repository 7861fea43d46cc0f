// What the forward products by subgroup matrices share: their definition in f64, their interface and their cases.
// Not a kernel. Invariant: one reference for every tile, so that no kernel is held to a looser one.
import { ceilDiv, type KernelCase, padded } from '../gpu/kernel.ts';
import { packBf16, roundBf16, testValues, unit, withStride } from './case-data.ts';
import { matmulMode } from './matmul.ts';
import { packReference } from './matrix-pack.ts';
import {
  type LowTile,
  lowConstants,
  lowGrid,
  narrowConstants,
  narrowGrid,
  packedWidth,
  tallConstants,
  tallGrid,
  tallTile,
} from './matrix-tiles.ts';

/**
 * The definition in f64 over packed rows. Bound: a step adds 16 exact products to the accumulator after aligning them
 * to the largest and cutting off below 24 bits, so 17 terms lose at most 2^-23 of it each: k * 17/16 * 2^-23 * sum |terms|
 * in all, and a few roundings at the end.
 */
export function matrixReference(
  x: Float64Array,
  w: (n: number, k: number) => number,
  initial: Float32Array | null,
  shape: { rows: number; columns: number; k: number; mode: number; scale: number },
): { values: Float64Array; bounds: Float64Array } {
  const { rows, columns, k, mode, scale } = shape;
  const values = new Float64Array(rows * columns);
  const bounds = new Float64Array(rows * columns);
  const steps = ceilDiv(k, 16);
  for (let m = 0; m < rows; m++) {
    for (let n = 0; n < columns; n++) {
      let sum = 0;
      let magnitude = 0;
      for (let i = 0; i < k; i++) {
        const term = x[m * k + i]! * w(n, i);
        sum += term;
        magnitude += Math.abs(term);
      }
      const at = m * columns + n;
      const before = initial && mode !== matmulMode.overwrite ? initial[at]! : 0;
      const factor = mode === matmulMode.continue ? 1 : scale;
      values[at] = before + factor * sum;
      bounds[at] = (17 * steps + 4) * 2 * unit * (Math.abs(before) + Math.abs(factor) * magnitude) + 1e-37;
    }
  }
  return { values, bounds };
}

/** A weight scale for tests: the exponent that the loader would choose. */
export function testWeightScale(w: Float32Array): number {
  return 2 ** (14 - Math.floor(Math.log2(w.reduce((most, v) => Math.max(most, Math.abs(v)), 2 ** -40))));
}

/** Packed rows with room for whole tall tiles, as the products read them. */
export function roomy(packed: Uint32Array<ArrayBuffer>, rows: number): Uint32Array<ArrayBuffer> {
  const wide = new Uint32Array((packed.length / rows) * ceilDiv(rows, tallTile) * tallTile);
  wide.set(packed);
  return wide;
}

/** The expected output with its padding columns, which stay as they were. */
export function wideExpected(
  rows: number,
  columns: number,
  found: { values: Float64Array; bounds: Float64Array },
  untouched: number,
) {
  const stride = padded(columns);
  const values = new Float64Array(rows * stride).fill(untouched);
  const bounds = new Float64Array(rows * stride);
  for (let m = 0; m < rows; m++) {
    values.set(found.values.subarray(m * columns, (m + 1) * columns), m * stride);
    bounds.set(found.bounds.subarray(m * columns, (m + 1) * columns), m * stride);
  }
  return { values, bounds };
}

/** Grid and pipeline constants of a forward product by one of its kernels. */
export function launchOf(tile: LowTile | 'narrow' | 'tall', rows: number, columns: number, k: number) {
  if (tile === 'tall') return { grid: tallGrid(rows, columns), constants: tallConstants(k) };
  if (tile === 'narrow') return { grid: narrowGrid(rows, columns), constants: narrowConstants(k) };
  return { grid: lowGrid(tile, rows, columns), constants: lowConstants(tile, k) };
}

/** A case of a forward product by one of its kernels: the low one with a tile, the narrow or the tall one. */
export function forwardCase(
  rows: number,
  columns: number,
  k: number,
  mode: number,
  tile: LowTile | 'narrow' | 'tall',
): KernelCase {
  const scale = mode === matmulMode.continue ? 1 : 0.75;
  const w = roundBf16(testValues(columns * k, 83 + columns, 0.05));
  const width = packedWidth(k);
  const { packed, scales, values: x } = packReference(testValues(rows * k, 81 + rows), rows, k, width);
  const initial = mode === matmulMode.overwrite ? null : testValues(rows * columns, 87);
  const found = matrixReference(x, (n, i) => w[n * k + i]!, initial, { rows, columns, k, mode, scale });
  const outStride = padded(columns);
  const launch = launchOf(tile, rows, columns, k);
  return {
    name: `${rows}x${columns}x${k} mode ${mode} ${typeof tile === 'string' ? tile : `tile ${tile.TILE_M}x${tile.TILE_N}x${tile.TILE_K}`}`,
    constants: launch.constants,
    params: {
      rows,
      columns,
      xStride8: width / 8,
      xOffset8: 0,
      outStride4: outStride / 4,
      outOffset4: 0,
      mode,
      weightScale: testWeightScale(w),
      scale,
    },
    grid: launch.grid,
    inputs: {
      x: roomy(packed, rows),
      scales,
      w: packBf16(w),
      ...(initial ? { out: withStride(initial, rows, columns, outStride) } : {}),
    },
    expected: { out: wideExpected(rows, columns, found, initial ? 0 : Number.NaN) },
  };
}

/** The interface of a forward product: the kernels differ in their tiles alone. */
export const forwardBindings = [
  { name: 'x', access: 'read' },
  { name: 'scales', access: 'read' },
  { name: 'w', access: 'read' },
  { name: 'out', access: 'read_write' },
] as const;
export const forwardParams = [
  ['rows', 'u32'],
  ['columns', 'u32'],
  ['xStride8', 'u32'],
  ['xOffset8', 'u32'],
  ['outStride4', 'u32'],
  ['outOffset4', 'u32'],
  ['mode', 'u32'],
  ['weightScale', 'f32'],
  ['scale', 'f32'],
] as const;
