// out = gain * x / sqrt(mean(x^2) + eps), row by row.
// Not LayerNorm: no mean is subtracted. Invariant: a row's bits depend on that row alone.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { testValues, unit, withStride } from './case-data.ts';

/**
 * The definition in f64. x: [rows, columns], gain: [columns]. Bound: the sum of squares has relative error at most
 * (columns / 64 + 70) * 2^-24 and enters by its square root; inverseSqrt is allowed 2 ULP, four roundings follow.
 */
export function rmsnormReference(x: Float32Array, gain: Float32Array, rows: number, columns: number, eps: number) {
  const values = new Float64Array(rows * columns);
  const bounds = new Float64Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let c = 0; c < columns; c++) sum += x[r * columns + c]! ** 2;
    const inverse = 1 / Math.sqrt(sum / columns + eps);
    for (let c = 0; c < columns; c++) {
      const value = gain[c]! * x[r * columns + c]! * inverse;
      values[r * columns + c] = value;
      bounds[r * columns + c] = (columns / 128 + 42) * unit * Math.abs(value) + 1e-38;
    }
  }
  return { values, bounds };
}

function makeCase(rows: number, columns: number, special: 'plain' | 'equal' | 'outlier'): KernelCase {
  const eps = 1e-6;
  const x = testValues(rows * columns, 21 + columns);
  if (special === 'equal') x.fill(0.25);
  if (special === 'outlier') x.fill(1).set([795], columns >> 1);
  const gain = testValues(columns, 22, 1.5);
  const stride = padded(columns);
  const { values, bounds } = rmsnormReference(x, gain, rows, columns, eps);
  const wide = new Float64Array(rows * stride);
  const wideBounds = new Float64Array(rows * stride);
  for (let r = 0; r < rows; r++) {
    wide.set(values.subarray(r * columns, (r + 1) * columns), r * stride);
    wideBounds.set(bounds.subarray(r * columns, (r + 1) * columns), r * stride);
  }
  return {
    name: `${rows}x${columns} ${special}`,
    params: { rows, columns, k4: stride / 4, eps },
    grid: foldedGrid(rows),
    inputs: { x: withStride(x, rows, columns, stride), gain: withStride(gain, 1, columns, stride) },
    expected: { out: { values: wide, bounds: wideBounds } },
  };
}

export const rmsnorm: QualifiedKernel = {
  name: 'rmsnorm',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['k4', 'u32'],
    ['eps', 'f32'],
  ],
  cases: () => [
    makeCase(1, 1, 'plain'),
    makeCase(3, 6, 'plain'),
    makeCase(2, 255, 'plain'),
    makeCase(5, 257, 'outlier'),
    makeCase(4, 1024, 'equal'),
    makeCase(2, 2048, 'plain'),
  ],
};

/** The same for software adapters: one thread a row. */
export const rmsnormRows: QualifiedKernel = {
  ...rmsnorm,
  name: 'rmsnorm-rows',
  cases: () => rmsnorm.cases().map((run) => ({ ...run, grid: foldedGrid(ceilDiv(run.params['rows']!, 8)) })),
};

/** Records the norm of `rows` rows in the form that suits the device; the bits are the same in all. */
export function recordRmsnorm(
  r: Recorder,
  views: readonly View[],
  params: { rows: number } & Record<string, number>,
): void {
  const software = r.variant !== 'tiles';
  r.dispatch(
    software ? rmsnormRows : rmsnorm,
    views,
    params,
    foldedGrid(software ? ceilDiv(params.rows, 8) : params.rows),
  );
}
