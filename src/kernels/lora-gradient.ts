// Partial sums over fixed chunks of rows of dB[n, r] = s * sum_m dOut[m, n] z[m, r] and dA[r, k] = sum_m dz[m, r] x[m, k].
// Not the gradients yet: ordered-sum adds the chunks. Invariant: a chunk is a range of row indices of the
// micro-batch, and its sum depends on its rows alone; chunks are added in order.
import { ceilDiv, constantsOnce, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit, withStride } from './case-data.ts';
import { columnScalarNames, columnScalars, type LoraColumns } from './lora-dz.ts';

/**
 * Rows of a chunk, a multiple of 16 and at most 256, by the width of the layer's output alone: it is part of the gradients'
 * bits.
 */
export function gradientChunk(width: number): number {
  return width <= 4096 ? 128 : 256;
}

/** Grid of `lora-gradient`: columns in x, chunks in y; targets, each with its sixteens of the rank, in z. */
export function loraGradientGrid(
  rows: number,
  chunk: number,
  targets: readonly LoraColumns[],
  rank: number,
): [number, number, number] {
  const widest = targets.reduce((most, { width }) => Math.max(most, width), 0);
  return [ceilDiv(widest, 128), ceilDiv(rows, chunk), targets.length * ceilDiv(rank, 16)];
}

const once = constantsOnce<number>();

/** Pipeline constants of `lora-gradient`. */
export function loraGradientConstants(chunk: number, transposed: boolean) {
  return once(2 * chunk + (transposed ? 1 : 0), () => ({ TRANSPOSED: transposed ? 1 : 0, CHUNK: chunk }));
}

interface CaseShape {
  rows: number;
  chunk: number;
  rank: number;
  targets: readonly LoraColumns[];
  transposed: boolean;
}

function makeCase({ rows, chunk, rank, targets, transposed }: CaseShape): KernelCase {
  const columns = targets.reduce((most, { start, width }) => Math.max(most, start + width), 0);
  const big = testValues(rows * columns, 211 + rows);
  const width = targets.length * rank;
  const small = testValues(rows * width, 212);
  const scale = 1.5;
  const outs: number[] = [];
  let length = 8;
  for (const target of targets) {
    outs.push(length);
    length += target.width * rank + 4;
  }
  const chunks = ceilDiv(rows, chunk);
  const values = new Float64Array(chunks * length).fill(Number.NaN);
  const bounds = new Float64Array(chunks * length);
  const outStride = targets[0]!.width;
  for (let c = 0; c < chunks; c++) {
    const rowsOf = Math.min(chunk, rows - c * chunk);
    for (const [t, target] of targets.entries()) {
      for (let n = 0; n < target.width; n++) {
        for (let r = 0; r < rank; r++) {
          let sum = 0;
          let magnitude = 0;
          for (let m = c * chunk; m < c * chunk + rowsOf; m++) {
            const term = big[m * columns + target.start + n]! * small[m * width + t * rank + r]!;
            sum += term;
            magnitude += Math.abs(term);
          }
          const at = c * length + outs[t]! + (transposed ? r * outStride + n : n * rank + r);
          values[at] = scale * sum;
          // A chain of ceil(rows / 4) terms, four additions and the scale.
          bounds[at] = (rowsOf / 4 + 8) * unit * scale * magnitude + 1e-38;
        }
      }
    }
  }
  const stride = columns + 4;
  return {
    name: `${rows} rows by ${chunk}, rank ${rank}, columns ${targets.map((t) => `${t.start}+${t.width}`).join(' ')}${transposed ? ' transposed' : ''}`,
    constants: loraGradientConstants(chunk, transposed),
    params: {
      rows,
      bigStride4: stride / 4,
      smallStride4: (width + 4) / 4,
      ...columnScalars(targets),
      out0: outs[0]!,
      out1: outs[1] ?? 0,
      out2: outs[2] ?? 0,
      outStride4: outStride / 4,
      length4: length / 4,
      rank4: rank / 4,
      scale,
    },
    grid: loraGradientGrid(rows, chunk, targets, rank),
    inputs: {
      big: withStride(big, rows, columns, stride, Number.NaN),
      small: withStride(small, rows, width, width + 4, Number.NaN),
    },
    expected: { partial: { values, bounds } },
  };
}

/**
 * Views: big f32 [rows, bigStride4 * 4], small f32 [rows, smallStride4 * 4], partial f32 [chunks, length4 * 4]. `out0` to
 * `out2` are elements within a chunk's part, multiples of four.
 */
export const loraGradient: QualifiedKernel = {
  name: 'lora-gradient',
  bindings: [
    { name: 'big', access: 'read' },
    { name: 'small', access: 'read' },
    { name: 'partial', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['bigStride4', 'u32'],
    ['smallStride4', 'u32'],
    ...columnScalarNames,
    ['out0', 'u32'],
    ['out1', 'u32'],
    ['out2', 'u32'],
    ['outStride4', 'u32'],
    ['length4', 'u32'],
    ['rank4', 'u32'],
    ['scale', 'f32'],
  ],
  constants: { TRANSPOSED: 0, CHUNK: 128 },
  cases: () => [
    makeCase({ rows: 1, chunk: 128, rank: 16, targets: [{ start: 0, width: 4 }], transposed: false }),
    makeCase({ rows: 130, chunk: 128, rank: 16, targets: [{ start: 4, width: 132 }], transposed: false }),
    makeCase({
      rows: 300,
      chunk: 256,
      rank: 20,
      targets: [
        { start: 0, width: 140 },
        { start: 140, width: 64 },
        { start: 208, width: 60 },
      ],
      transposed: false,
    }),
    makeCase({ rows: 65, chunk: 128, rank: 4, targets: [{ start: 0, width: 8 }], transposed: true }),
    makeCase({ rows: 257, chunk: 128, rank: 36, targets: [{ start: 0, width: 260 }], transposed: true }),
  ],
};
