// Rows of f32 activations or gradients to rows of f16 with a power-of-two scale each: the operands of matrix-matmul.
// Not a storage format: packed rows live for one product. Invariant: a row's bits depend on that row alone.
import { foldedGrid, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import { f16ToF32, f32ToF16 } from '../lib/half.ts';
import { testValues, withStride } from './case-data.ts';
import { packedWidth } from './matrix-tiles.ts';

/** Rows as the kernel packs them, and the values that they stand for. */
export interface PackedRows {
  /** [rows, width] f16, two a word. */
  packed: Uint32Array<ArrayBuffer>;
  /** [rows]: what a packed value is times, a power of two. */
  scales: Float32Array<ArrayBuffer>;
  /** [rows, columns]: packed value times scale, exact in f64. */
  values: Float64Array;
}

/**
 * The definition. x: [rows, columns]. 2^e brings the row's largest magnitude into [2^14, 2^15) (e at most 126; 0 for a
 * row of zeros); then nearest f16, ties to even. Error at most 2^-11 of the element, or
 * 2^-39 of the row's largest.
 */
export function packReference(x: Float32Array, rows: number, columns: number, width: number): PackedRows {
  const halves = new Uint16Array(rows * width);
  const scales = new Float32Array(rows);
  const values = new Float64Array(rows * columns);
  for (let m = 0; m < rows; m++) {
    const row = x.subarray(m * columns, (m + 1) * columns);
    const top = row.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const bad = row.some((v) => !Number.isFinite(v));
    const e = top === 0 ? 0 : Math.min(126, 14 - Math.floor(Math.log2(Math.min(top, 3.4e38))));
    scales[m] = bad ? 2 ** -(14 - 127) : 2 ** -e;
    for (let k = 0; k < columns; k++) {
      const half = bad ? 0x7e00 : f32ToF16(Math.fround(row[k]! * 2 ** e));
      halves[m * width + k] = half;
      values[m * columns + k] = f16ToF32(half) * scales[m]!;
    }
    if (bad) halves.fill(0x7e00, m * width, (m + 1) * width);
  }
  return { packed: new Uint32Array(halves.buffer), scales, values };
}

function makeCase(name: string, rows: number, columns: number, change: (x: Float32Array) => void): KernelCase {
  const x = testValues(rows * columns, 71 + columns);
  change(x);
  const stride = padded(columns);
  const width = packedWidth(columns);
  const { packed, scales } = packReference(x, rows, columns, width);
  return {
    name: `${rows}x${columns} ${name}`,
    params: { rows, k4: stride / 4, xStride4: stride / 4, packed2: width / 4 },
    grid: foldedGrid(rows),
    inputs: { x: withStride(x, rows, columns, stride) },
    expected: { packed, scales: new Uint32Array(scales.buffer) },
  };
}

/** Values whose f16 is a tie, a subnormal or zero once the row is scaled by one of exact size 2^14. */
function edges(x: Float32Array): void {
  x[0] = 2 ** 14;
  for (let i = 1; i < x.length; i++) x[i] = (i % 2 ? -1 : 1) * (1 + (i % 64) / 4096) * 2 ** -(i % 29);
}

export const matrixPack: QualifiedKernel = {
  name: 'matrix-pack',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'packed', access: 'read_write' },
    { name: 'scales', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['k4', 'u32'],
    ['xStride4', 'u32'],
    ['packed2', 'u32'],
  ],
  cases: () => [
    makeCase('plain', 5, 258, () => {}),
    makeCase('plain', 3, 2048, () => {}),
    makeCase('ties and subnormals', 1, 4096, edges),
    makeCase('rows of every size', 40, 64, (x) => {
      for (let i = 0; i < x.length; i++) x[i] = x[i]! * 2 ** (3 * (Math.floor(i / 64) - 20));
    }),
    makeCase('a row of zeros, one with a NaN', 3, 100, (x) => {
      x.fill(0, 0, 100);
      x[150] = Number.NaN;
    }),
  ],
};
