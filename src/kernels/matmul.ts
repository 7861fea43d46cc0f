// out[m, n] = sum_k x[m, k] * w[n, k]: every linear layer, LoRA projection and the vocabulary head.
// Not transposed products: see matmul-nn and matmul-tn. Invariant: one accumulator an output, k ascending, so an output's
// bits depend on its row of x and its row of w alone.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { packBf16, roundBf16, testValues, unit, withStride } from './case-data.ts';
import { lanesCases, lanesShape } from './lanes.ts';
import { SKINNY_ROWS, skinnyCases, skinnyShape, tiledCases, tiledShape } from './tiles.ts';

/** How a product meets what stands in `out`: replaces it, continues its sum, or is added to it after scaling. */
export const matmulMode = { overwrite: 0, continue: 1, add: 2 } as const;

/** Grid of `matmul`: 64 threads of four columns in x, `rowsPerThread` rows in y. */
export function matmulGrid(rows: number, columns: number, rowsPerThread: number): [number, number, number] {
  return [ceilDiv(columns, 256), ceilDiv(rows, rowsPerThread), 1];
}

/**
 * The definition in f64, with an error bound: one f32 sum of k terms errs by at most (k + 2) * 2^-24 * sum |terms|.
 * x: [rows, k], w: [columns, k], initial: [rows, columns] or null.
 */
export function matmulReference(
  x: Float32Array,
  w: Float32Array,
  initial: Float32Array | null,
  shape: { rows: number; columns: number; k: number; mode: number; scale: number },
): { values: Float64Array; bounds: Float64Array } {
  const { rows, columns, k, mode, scale } = shape;
  const values = new Float64Array(rows * columns);
  const bounds = new Float64Array(rows * columns);
  for (let m = 0; m < rows; m++) {
    for (let n = 0; n < columns; n++) {
      let sum = 0;
      let magnitude = 0;
      for (let i = 0; i < k; i++) {
        const term = x[m * k + i]! * w[n * k + i]!;
        sum += term;
        magnitude += Math.abs(term);
      }
      const at = m * columns + n;
      const before = initial && mode !== matmulMode.overwrite ? initial[at]! : 0;
      const factor = mode === matmulMode.continue ? 1 : scale;
      values[at] = before + factor * sum;
      bounds[at] = (k + 4) * unit * (Math.abs(before) + Math.abs(factor) * magnitude) + 1e-38;
    }
  }
  return { values, bounds };
}

function makeCase(
  rows: number,
  columns: number,
  k: number,
  mode: number,
  bf16: boolean,
  rowsPerThread: number,
): KernelCase {
  const scale = mode === matmulMode.continue ? 1 : 0.75;
  const x = testValues(rows * k, 11 * rows + k);
  const raw = testValues(columns * k, 13 * columns + k);
  const w = bf16 ? roundBf16(raw) : raw;
  const stride = padded(k);
  const outStride = padded(columns);
  const initial = mode === matmulMode.overwrite ? null : testValues(rows * columns, 17);
  const { values, bounds } = matmulReference(x, w, initial, { rows, columns, k, mode, scale });
  // The padding columns of out must stay untouched: they keep NaN, or zero where out is also an input.
  const wide = new Float64Array(rows * outStride).fill(initial ? 0 : Number.NaN);
  const wideBounds = new Float64Array(rows * outStride);
  for (let m = 0; m < rows; m++) {
    wide.set(values.subarray(m * columns, (m + 1) * columns), m * outStride);
    wideBounds.set(bounds.subarray(m * columns, (m + 1) * columns), m * outStride);
  }
  const padW = withStride(w, columns, k, stride);
  const inputs = {
    x: withStride(x, rows, k, stride),
    w: bf16 ? packBf16(padW) : padW,
    ...(initial ? { out: withStride(initial, rows, columns, outStride) } : {}),
  };
  return {
    name: `${rows}x${columns}x${k} mode ${mode} ${bf16 ? 'bf16' : 'f32'} rows/thread ${rowsPerThread}`,
    constants: { ROWS: rowsPerThread, BF16: bf16 ? 1 : 0 },
    params: {
      rows,
      columns,
      k4: stride / 4,
      xStride4: stride / 4,
      xOffset4: 0,
      outStride,
      outOffset: 0,
      mode,
      scale,
    },
    grid: matmulGrid(rows, columns, rowsPerThread),
    inputs,
    expected: { out: { values: wide, bounds: wideBounds } },
  };
}

export const matmul: QualifiedKernel = {
  name: 'matmul',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'w', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['k4', 'u32'],
    ['xStride4', 'u32'],
    ['xOffset4', 'u32'],
    ['outStride', 'u32'],
    ['outOffset', 'u32'],
    ['mode', 'u32'],
    ['scale', 'f32'],
  ],
  constants: { ROWS: 4, BF16: 1 },
  cases: () => [
    makeCase(1, 1, 1, 0, true, 1),
    makeCase(1, 255, 7, 0, true, 1),
    makeCase(3, 256, 64, 0, true, 4),
    makeCase(5, 257, 63, 0, true, 4),
    makeCase(5, 257, 63, 0, false, 1),
    makeCase(4, 33, 130, 1, true, 4),
    makeCase(6, 33, 130, 2, false, 4),
    makeCase(9, 16, 2048, 0, true, 4),
    makeCase(16, 35, 260, 0, true, 4),
    makeCase(13, 20, 24, 2, false, 4),
    makeCase(130, 131, 37, 0, true, 4),
  ],
};

/** The same product for software adapters: lanes of a subgroup share their loads of x. */
export const matmulLanes: QualifiedKernel = {
  ...matmul,
  name: 'matmul-lanes',
  constants: { ROWS: 8, MODE: 0, BF16: 1, NARROW: 0, QUADS: 0 },
  needs: 'subgroups-of-8',
  cases: () => lanesCases(matmul.cases()),
};

/** The same product for GPUs: 128 x 128 outputs a workgroup. */
export const matmulTiled: QualifiedKernel = {
  ...matmul,
  name: 'matmul-tiled',
  constants: { BF16: 1 },
  cases: () => tiledCases(matmul.cases()),
};

/** The same product for GPUs and at most sixteen rows: a step of decoding. */
export const matmulSkinny: QualifiedKernel = {
  ...matmul,
  name: 'matmul-skinny',
  constants: { BF16: 1, ROWS: 1, LEFT: 128 },
  cases: () => skinnyCases(matmul.cases()),
};

/** The scalars of `matmul`. */
export interface MatmulParams {
  rows: number;
  columns: number;
  k4: number;
  xStride4: number;
  xOffset4: number;
  outStride: number;
  outOffset: number;
  mode: number;
  scale: number;
}

/** Records a product in the form that suits the device; the bits are the same in all. */
export function recordMatmul(
  r: Recorder,
  views: readonly View[],
  params: MatmulParams & Record<string, number>,
  bf16: boolean,
): void {
  const { rows, columns } = params;
  if (r.variant === 'lanes') {
    const { constants, grid } = lanesShape(rows, columns, params.mode, bf16);
    r.dispatch(matmulLanes, views, params, grid, constants);
    return;
  }
  if (r.variant === 'tiles') {
    const { constants, grid } = (rows <= SKINNY_ROWS ? skinnyShape : tiledShape)(rows, columns, bf16);
    r.dispatch(rows <= SKINNY_ROWS ? matmulSkinny : matmulTiled, views, params, grid, constants);
    return;
  }
  const perThread = rows === 1 ? 1 : 4;
  r.dispatch(matmul, views, params, matmulGrid(rows, columns, perThread), { ROWS: perThread, BF16: bf16 ? 1 : 0 });
}
