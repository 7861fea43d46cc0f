// dz[m, t * rank + r] = s * sum_n dOut[m, n] * b[r, n] over the columns n of target t: LoRA's part of a backward pass that
// is a long sum with few outputs. Invariant: slices of columns and the order within one are fixed
// (shaders/lora-dz.wgsl), so a row's bits depend on its dOut and on b, whatever rows stand beside it.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit, withStride } from './case-data.ts';
import { shifted } from './matrix-matmul-lora.ts';

/** Columns of one LoRA target in a fused layer's output; multiples of four. */
export interface LoraColumns {
  start: number;
  width: number;
}

/** Scalars that name the columns of up to three targets; missing ones are empty. */
export function columnScalars(targets: readonly LoraColumns[]) {
  const at = (t: number) => targets[t] ?? { start: 0, width: 0 };
  return {
    start0: at(0).start,
    start1: at(1).start,
    start2: at(2).start,
    width0: at(0).width,
    width1: at(1).width,
    width2: at(2).width,
  };
}

export const columnScalarNames = [
  ['start0', 'u32'],
  ['start1', 'u32'],
  ['start2', 'u32'],
  ['width0', 'u32'],
  ['width1', 'u32'],
  ['width2', 'u32'],
] as const;

const widest = (targets: readonly LoraColumns[]): number =>
  targets.reduce((most, { width }) => Math.max(most, width), 0);

/** Columns of a slice, a multiple of 64, by the targets' widths alone: it is part of the order of the sum. */
export function dzSlice(targets: readonly LoraColumns[]): number {
  return targets.length === 1 && widest(targets) <= 4096 ? 512 : 1024;
}

/** Slices of `lora-dz` for its widest target. */
export function dzSlices(targets: readonly LoraColumns[], slice = dzSlice(targets)): number {
  return ceilDiv(widest(targets), slice);
}

/** Grid of `lora-dz`: tiles of 32 rows in x; targets, each with its sixteens of the rank, in y; slices in z. */
export function loraDzGrid(rows: number, targets: number, rank: number, slices: number): [number, number, number] {
  return [ceilDiv(rows, 32), targets * ceilDiv(rank, 16), slices];
}

function makeCase(rows: number, slice: number, rank: number, targets: readonly LoraColumns[]): KernelCase {
  const columns = targets.reduce((most, { start, width }) => Math.max(most, start + width), 0);
  const stride = columns + 8;
  const dOut = testValues(rows * columns, 201 + rows);
  const b = testValues(columns * rank, 202, 0.3);
  const bStride = columns + 12;
  const width = targets.length * rank;
  const scale = 1.5;
  const zStride = width + 4;
  const slices = dzSlices(targets, slice);
  const values = new Float64Array(slices * rows * zStride).fill(Number.NaN);
  const bounds = new Float64Array(slices * rows * zStride);
  for (let m = 0; m < slices * rows; m++) {
    const first = Math.floor(m / rows) * slice;
    for (const [t, target] of targets.entries()) {
      for (let r = 0; r < rank; r++) {
        let sum = 0;
        let magnitude = 0;
        for (let n = target.start + first; n < target.start + Math.min(target.width, first + slice); n++) {
          const term = dOut[(m % rows) * columns + n]! * b[r * columns + n]!;
          sum += term;
          magnitude += Math.abs(term);
        }
        values[m * zStride + t * rank + r] = scale * sum;
        // A chain of a sixteenth of the terms, in whole quads, sixteen additions and the scale.
        bounds[m * zStride + t * rank + r] = (slice / 16 + 24) * unit * scale * magnitude + 1e-38;
      }
    }
  }
  return {
    name: `${rows} rows, slices of ${slice}, rank ${rank}, targets ${targets.map((t) => `${t.start}+${t.width}`).join(' ')}`,
    params: {
      rows,
      outStride4: stride / 4,
      zStride4: zStride / 4,
      ...columnScalars(targets),
      bStride4: bStride / 4,
      bOffset4: 1,
      slice,
      rank4: rank / 4,
      scale,
    },
    grid: loraDzGrid(rows, targets.length, rank, slices),
    inputs: { dOut: withStride(dOut, rows, columns, stride, Number.NaN), b: shifted(b, rank, columns, bStride) },
    expected: { dz: { values, bounds } },
  };
}

/**
 * Views: dOut f32 [rows, outStride4 * 4]; b f32 [rank, bStride4 * 4], the targets' B transposed, next to each other; dz
 * f32 [slices, rows, zStride4 * 4], whose slices are to be added in order.
 */
export const loraDz: QualifiedKernel = {
  name: 'lora-dz',
  bindings: [
    { name: 'dOut', access: 'read' },
    { name: 'b', access: 'read' },
    { name: 'dz', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['outStride4', 'u32'],
    ['zStride4', 'u32'],
    ...columnScalarNames,
    ['bStride4', 'u32'],
    ['bOffset4', 'u32'],
    ['slice', 'u32'],
    ['rank4', 'u32'],
    ['scale', 'f32'],
  ],
  cases: () => [
    makeCase(1, 64, 16, [{ start: 0, width: 4 }]),
    makeCase(33, 256, 16, [{ start: 0, width: 132 }]),
    makeCase(17, 128, 4, [
      { start: 0, width: 300 },
      { start: 304, width: 60 },
    ]),
    makeCase(40, 64, 36, [
      { start: 8, width: 128 },
      { start: 136, width: 64 },
      { start: 200, width: 260 },
    ]),
    makeCase(5, 1024, 16, [{ start: 0, width: 2052 }]),
  ],
};
