// out[i] = sum over slices of partial[slice, i]: the end of sums that were cut into slices (LoRA's gradients by chunks of
// rows, dz and the head's gradient by slices of columns). Invariant: slices are added one after the other in order;
// nothing outside the given elements changes.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { testValues, unit } from './case-data.ts';

/** Grid of `ordered-sum`: one thread four elements. */
export function orderedSumGrid(length: number): [number, number, number] {
  return foldedGrid(ceilDiv(length, 256));
}

function makeCase(length: number, slices: number, offset: number): KernelCase {
  const partial = testValues(length * slices, 221);
  const values = new Float64Array(offset + length + 4).fill(Number.NaN);
  const bounds = new Float64Array(offset + length + 4);
  for (let i = 0; i < length; i++) {
    let sum = 0;
    let magnitude = 0;
    for (let c = 0; c < slices; c++) {
      sum += partial[c * length + i]!;
      magnitude += Math.abs(partial[c * length + i]!);
    }
    values[offset + i] = sum;
    bounds[offset + i] = slices * unit * magnitude;
  }
  return {
    name: `${length} elements of ${slices} slices`,
    params: { length4: length / 4, slices, outOffset4: offset / 4 },
    grid: orderedSumGrid(length),
    inputs: { partial },
    expected: { out: { values, bounds } },
  };
}

/** Views: partial f32 [slices, length4 * 4], out f32, of which `length4` quads from `outOffset4` on are written. */
export const orderedSum: QualifiedKernel = {
  name: 'ordered-sum',
  bindings: [
    { name: 'partial', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['length4', 'u32'],
    ['slices', 'u32'],
    ['outOffset4', 'u32'],
  ],
  cases: () => [makeCase(4, 1, 0), makeCase(256, 3, 64), makeCase(260, 24, 4), makeCase(65_540, 2, 0)],
};

/** Records the sum of `slices` slices of `length` elements (a multiple of four) into `out` from element `offset` on. */
export function recordOrderedSum(
  r: Recorder,
  partial: View,
  out: View,
  length: number,
  slices: number,
  offset = 0,
): void {
  const params = { length4: length / 4, slices, outOffset4: offset / 4 };
  r.dispatch(orderedSum, [partial, out], params, orderedSumGrid(length));
}
