// The gradient of rmsnorm with respect to x; the gain is frozen and has none.
// Invariant: a row's bits depend on that row alone; ADD adds to what the residual stream already carries.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { testValues, unit, withStride } from './case-data.ts';

function makeCase(rows: number, columns: number, add: boolean): KernelCase {
  const eps = 1e-6;
  const x = testValues(rows * columns, 31 + columns);
  const gain = testValues(columns, 32, 1.5);
  const dOut = testValues(rows * columns, 33);
  const stride = padded(columns);
  const before = add ? testValues(rows * columns, 34) : null;
  const values = new Float64Array(rows * stride);
  const bounds = new Float64Array(rows * stride);
  for (let r = 0; r < rows; r++) {
    let square = 0;
    let product = 0;
    let magnitude = 0;
    for (let c = 0; c < columns; c++) {
      const at = r * columns + c;
      square += x[at]! ** 2;
      product += gain[c]! * dOut[at]! * x[at]!;
      magnitude += Math.abs(gain[c]! * dOut[at]! * x[at]!);
    }
    const inverse = 1 / Math.sqrt(square / columns + eps);
    for (let c = 0; c < columns; c++) {
      const at = r * columns + c;
      const own = inverse * gain[c]! * dOut[at]!;
      const pull = (x[at]! * inverse ** 3) / columns;
      const old = before ? before[at]! : 0;
      values[r * stride + c] = old + own - pull * product;
      // Sums of columns / 64 + 64 additions each; the cube of the inverse triples its relative error.
      const relative = (3 * (columns / 128 + 42) + columns / 64 + 70) * unit;
      bounds[r * stride + c] = relative * (Math.abs(own) + Math.abs(pull) * magnitude + Math.abs(old)) + 1e-38;
    }
  }
  return {
    name: `${rows}x${columns} ${add ? 'added' : 'written'}`,
    constants: { ADD: add ? 1 : 0 },
    params: { rows, columns, k4: stride / 4, eps },
    grid: foldedGrid(rows),
    inputs: {
      x: withStride(x, rows, columns, stride),
      gain: withStride(gain, 1, columns, stride),
      dOut: withStride(dOut, rows, columns, stride),
      ...(before ? { dx: withStride(before, rows, columns, stride) } : {}),
    },
    expected: { dx: { values, bounds } },
  };
}

export const rmsnormBackward: QualifiedKernel = {
  name: 'rmsnorm-backward',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'dOut', access: 'read' },
    { name: 'dx', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['k4', 'u32'],
    ['eps', 'f32'],
  ],
  constants: { ADD: 1 },
  cases: () => [makeCase(1, 1, false), makeCase(3, 63, true), makeCase(2, 257, true), makeCase(4, 1024, false)],
};

/** The same for software adapters: one thread a row. */
export const rmsnormBackwardRows: QualifiedKernel = {
  ...rmsnormBackward,
  name: 'rmsnorm-backward-rows',
  cases: () => rmsnormBackward.cases().map((run) => ({ ...run, grid: foldedGrid(ceilDiv(run.params['rows']!, 8)) })),
};

const added = { ADD: 1 };
const written = { ADD: 0 };

/** Records the gradient of the norm of `rows` rows in the form that suits the device; `add`: to what `dx` holds. */
export function recordRmsnormBackward(
  r: Recorder,
  views: readonly View[],
  params: { rows: number } & Record<string, number>,
  add: boolean,
): void {
  const software = r.variant !== 'tiles';
  const grid = foldedGrid(software ? ceilDiv(params.rows, 8) : params.rows);
  r.dispatch(software ? rmsnormBackwardRows : rmsnormBackward, views, params, grid, add ? added : written);
}
