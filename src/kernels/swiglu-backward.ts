// The gradients of silu(gate) * up with respect to gate and up.
// Invariant: elementwise, so no order to keep.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';
import { gateUpValues, sigmoidError, swigluGrid } from './swiglu.ts';

function makeCase(rows: number, c4: number): KernelCase {
  const gateUp = gateUpValues(rows, c4);
  const width = c4 * 4;
  const dOut = testValues(rows * width, 43);
  const values = new Float64Array(rows * width * 2);
  const bounds = new Float64Array(rows * width * 2);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < width; c++) {
      const at = r * width * 2 + c;
      const g = gateUp[at]!;
      const u = gateUp[at + width]!;
      const d = dOut[r * width + c]!;
      const s = 1 / (1 + Math.exp(Math.min(-g, 80)));
      values[at] = d * u * s * (1 + g * (1 - s));
      values[at + width] = d * g * s;
      // 1 - s cancels for large g: its error is that of s itself, weighted by |g|.
      const error = sigmoidError(g) + 6 * unit;
      bounds[at] = Math.abs(d * u * s) * ((error + 8 * unit) * (1 + Math.abs(g)) * 2 + 4 * unit) + 1e-37;
      bounds[at + width] = (error + 4 * unit) * Math.abs(values[at + width]!) + 1e-37;
    }
  }
  return {
    name: `${rows}x${width}`,
    params: { rows, c4, inStride4: c4 * 2, upOffset4: c4 },
    grid: swigluGrid(rows, c4),
    inputs: { gateUp, dOut },
    expected: { dGateUp: { values, bounds } },
  };
}

export const swigluBackward: QualifiedKernel = {
  name: 'swiglu-backward',
  bindings: [
    { name: 'gateUp', access: 'read' },
    { name: 'dOut', access: 'read' },
    { name: 'dGateUp', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['c4', 'u32'],
    ['inStride4', 'u32'],
    ['upOffset4', 'u32'],
  ],
  cases: () => [makeCase(1, 1), makeCase(3, 63), makeCase(2, 65)],
};
