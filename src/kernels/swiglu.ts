// out = silu(gate) * up: the gate of the MLP.
// Invariant: elementwise; finite for every finite input within the range of f32.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';

/** Grid of `swiglu` and its backward: four columns a thread in x, rows in y. */
export function swigluGrid(rows: number, c4: number): [number, number, number] {
  return [ceilDiv(c4, 64), rows, 1];
}

/** Gate and up values with both tails of the gate: [rows, 2, c4 * 4]. */
export function gateUpValues(rows: number, c4: number): Float32Array<ArrayBuffer> {
  const gateUp = testValues(rows * c4 * 8, 41, 6);
  gateUp[0] = -200;
  gateUp[1] = 200;
  gateUp[2] = -79.5;
  return gateUp;
}

/** Error of 1 + exp(-g) relative to it: exp is allowed 3 + 2|g| ULP (an ULP is two roundings). */
export function sigmoidError(g: number): number {
  const e = Math.exp(Math.min(-g, 80));
  return ((2 * (3 + 2 * Math.min(Math.abs(g), 80)) * e) / (1 + e) + 1) * unit;
}

function makeCase(rows: number, c4: number): KernelCase {
  const gateUp = gateUpValues(rows, c4);
  const width = c4 * 4;
  const values = new Float64Array(rows * width);
  const bounds = new Float64Array(rows * width);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < width; c++) {
      const g = gateUp[r * width * 2 + c]!;
      const u = gateUp[r * width * 2 + width + c]!;
      const value = (g / (1 + Math.exp(Math.min(-g, 80)))) * u;
      values[r * width + c] = value;
      // Division is allowed 2.5 ULP, the product one rounding.
      bounds[r * width + c] = (sigmoidError(g) + 6 * unit) * Math.abs(value) + 1e-37;
    }
  }
  return {
    name: `${rows}x${width}`,
    params: { rows, c4, inStride4: c4 * 2, upOffset4: c4 },
    grid: swigluGrid(rows, c4),
    inputs: { gateUp },
    expected: { out: { values, bounds } },
  };
}

export const swiglu: QualifiedKernel = {
  name: 'swiglu',
  bindings: [
    { name: 'gateUp', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['c4', 'u32'],
    ['inStride4', 'u32'],
    ['upOffset4', 'u32'],
  ],
  cases: () => [makeCase(1, 1), makeCase(3, 63), makeCase(2, 65)],
};
