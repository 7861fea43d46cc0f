// out[m, c] = sum_n x[m, n] * w[n, c]: gradients with respect to a layer's input, and LoRA's products from the left.
// Invariant: one accumulator an output, n ascending; the stored weight is read as the forward stores it.

import type { View } from '../gpu/buffers.ts';
import { type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { packBf16, roundBf16, testValues, withStride } from './case-data.ts';
import { lanesCases, lanesShape } from './lanes.ts';
import { matmulGrid, matmulMode, matmulReference } from './matmul.ts';
import { tiledCases, tiledShape } from './tiles.ts';

function makeCase(
  rows: number,
  columns: number,
  n: number,
  mode: number,
  bf16: boolean,
  rowsPerThread: number,
): KernelCase {
  const scale = mode === matmulMode.continue ? 1 : 0.75;
  const x = testValues(rows * n, 51 + n);
  const raw = testValues(n * columns, 52 + columns);
  const w = bf16 ? roundBf16(raw) : raw;
  const transposed = new Float32Array(columns * n);
  for (let i = 0; i < n; i++) for (let c = 0; c < columns; c++) transposed[c * n + i] = w[i * columns + c]!;
  const initial = mode === matmulMode.overwrite ? null : testValues(rows * columns, 53);
  const { values, bounds } = matmulReference(x, transposed, initial, { rows, columns, k: n, mode, scale });
  const stride = padded(columns);
  const padW = withStride(w, n, columns, stride);
  return {
    name: `${rows}x${columns}x${n} mode ${mode} ${bf16 ? 'bf16' : 'f32'} rows/thread ${rowsPerThread}`,
    constants: { ROWS: rowsPerThread, BF16: bf16 ? 1 : 0 },
    params: {
      rows,
      columns,
      n,
      c4: stride / 4,
      xStride4: padded(n) / 4,
      xOffset4: 0,
      outStride: columns,
      outOffset: 0,
      mode,
      scale,
    },
    grid: matmulGrid(rows, columns, rowsPerThread),
    inputs: {
      x: withStride(x, rows, n, padded(n)),
      w: bf16 ? packBf16(padW) : padW,
      ...(initial ? { out: initial } : {}),
    },
    expected: { out: { values, bounds } },
  };
}

export const matmulNn: QualifiedKernel = {
  name: 'matmul-nn',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'w', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['n', 'u32'],
    ['c4', 'u32'],
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
    makeCase(5, 255, 7, 0, true, 4),
    makeCase(3, 257, 64, 0, false, 4),
    makeCase(6, 33, 130, 1, true, 4),
    makeCase(6, 33, 129, 2, false, 1),
    makeCase(130, 131, 37, 0, true, 4),
  ],
};

/** The same product for software adapters: lanes of a subgroup share their loads of x. */
export const matmulNnLanes: QualifiedKernel = {
  ...matmulNn,
  name: 'matmul-nn-lanes',
  constants: { ROWS: 8, MODE: 0, BF16: 1, NARROW: 0, QUADS: 0 },
  needs: 'subgroups-of-8',
  cases: () => lanesCases(matmulNn.cases()),
};

/** The same product for GPUs: 128 x 128 outputs a workgroup. */
export const matmulNnTiled: QualifiedKernel = {
  ...matmulNn,
  name: 'matmul-nn-tiled',
  constants: { BF16: 1 },
  cases: () => tiledCases(matmulNn.cases()),
};

/** The scalars of `matmul-nn`. */
export interface MatmulNnParams {
  rows: number;
  columns: number;
  n: number;
  c4: number;
  xStride4: number;
  xOffset4: number;
  outStride: number;
  outOffset: number;
  mode: number;
  scale: number;
}

/** Records a product in the form that suits the device; the bits are the same in all. */
export function recordMatmulNn(
  r: Recorder,
  views: readonly View[],
  params: MatmulNnParams & Record<string, number>,
  bf16: boolean,
): void {
  const { rows, columns } = params;
  if (r.variant === 'lanes') {
    const { constants, grid } = lanesShape(rows, columns, params.mode, bf16);
    r.dispatch(matmulNnLanes, views, params, grid, constants);
    return;
  }
  if (r.variant === 'tiles') {
    const { constants, grid } = tiledShape(rows, columns, bf16);
    r.dispatch(matmulNnTiled, views, params, grid, constants);
    return;
  }
  const perThread = rows === 1 ? 1 : 4;
  r.dispatch(matmulNn, views, params, matmulGrid(rows, columns, perThread), { ROWS: perThread, BF16: bf16 ? 1 : 0 });
}
