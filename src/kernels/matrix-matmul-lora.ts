// out[m, n] = sum_k x[m, k] * w[n, k] + s * sum_r z[m, r] * b[r, n]: a fused linear layer with its LoRA in one product.
// Not matrix-matmul's continued sums: an output is overwritten or added to. Invariant: the product has matrix-matmul's
// bits, and the LoRA term its own f32 accumulator, r ascending.
import { ceilDiv, constantsOnce, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import { packBf16, roundBf16, testValues, unit, withStride } from './case-data.ts';
import { matmulMode } from './matmul.ts';
import { matrixReference, roomy, testWeightScale, wideExpected } from './matrix-cases.ts';
import { packReference } from './matrix-pack.ts';
import { packedWidth, tallConstants, tallGrid, wideConstants, wideGrid, wideIsFaster } from './matrix-tiles.ts';

/** The scalars of `matrix-matmul-lora`. */
export interface MatrixMatmulLoraParams extends Record<string, number> {
  rows: number;
  columns: number;
  /** Of the packed rows, in groups of eight f16. */
  xStride8: number;
  xOffset8: number;
  outStride4: number;
  outOffset4: number;
  /** 0 overwrites, 2 adds to out (one addition, before the LoRA term). */
  mode: number;
  weightScale: number;
  /** Quads of a row of z. */
  zStride4: number;
  /** Quads of a row of b, and its first quad that is used. */
  bStride4: number;
  bOffset4: number;
  /** First column of the second and of the third target, multiples of four; `columns` where there is none. */
  split1: number;
  split2: number;
  loraScale: number;
}

const once = constantsOnce<string>();
const wideOnce = constantsOnce<string>();

/** Pipeline constants for a sum of `k` terms and a stored rank, a multiple of four; rank 0: no LoRA term. */
export function matrixMatmulLoraConstants(k: number, rank: number) {
  return once(`${k} ${rank}`, () => ({ ...tallConstants(k), RANK4: rank / 4 }));
}

/** The same for the wide form, for a sum of `k` terms, a multiple of 64. */
export function matrixMatmulLoraWideConstants(k: number, rank: number) {
  return wideOnce(`${k} ${rank}`, () => ({ ...wideConstants(k), RANK4: rank / 4 }));
}

/**
 * Adds the LoRA term to a product's reference, in f64. Bound: one f32 sum of `rank` terms and two roundings more.
 * z: [rows, targets * rank], b: [rank, columns]; columns from splits[t - 1] on belong to target t.
 */
export function addLora(
  found: { values: Float64Array; bounds: Float64Array },
  z: Float32Array,
  b: Float32Array,
  shape: { rows: number; columns: number; rank: number; splits: readonly number[]; scale: number },
): void {
  const { rows, columns, rank, splits, scale } = shape;
  const width = (splits.length + 1) * rank;
  for (let m = 0; m < rows; m++) {
    for (let n = 0; n < columns; n++) {
      const from = m * width + splits.filter((split) => n >= split).length * rank;
      let sum = 0;
      let magnitude = 0;
      for (let r = 0; r < rank; r++) {
        const term = z[from + r]! * b[r * columns + n]!;
        sum += term;
        magnitude += Math.abs(term);
      }
      const at = m * columns + n;
      found.bounds[at]! += (rank + 2) * unit * Math.abs(scale) * magnitude + 2 * unit * Math.abs(found.values[at]!);
      found.values[at]! += scale * sum;
    }
  }
}

/** Rows of b from their second quad on, as the case reads them. */
export function shifted(b: Float32Array, rank: number, columns: number, stride: number): Float32Array<ArrayBuffer> {
  const wide = new Float32Array(Math.max(1, rank) * stride).fill(Number.NaN);
  for (let r = 0; r < rank; r++) wide.set(b.subarray(r * columns, (r + 1) * columns), r * stride + 4);
  return wide;
}

/** A case of the product, for `rows` rows. */
export function loraProductCase(
  rows: number,
  columns: number,
  k: number,
  mode: number,
  rank: number,
  splits: readonly number[],
): KernelCase {
  const w = roundBf16(testValues(columns * k, 183 + columns, 0.05));
  const width = packedWidth(k);
  const { packed, scales, values: x } = packReference(testValues(rows * k, 181 + rows), rows, k, width);
  const initial = mode === matmulMode.overwrite ? null : testValues(rows * columns, 187);
  const found = matrixReference(x, (n, i) => w[n * k + i]!, initial, { rows, columns, k, mode, scale: 1 });
  const zWidth = (splits.length + 1) * rank;
  const z = testValues(rows * zWidth, 189);
  const b = testValues(columns * rank, 190, 0.3);
  const bStride = padded(columns) + 8;
  const loraScale = 1.5;
  if (rank > 0) addLora(found, z, b, { rows, columns, rank, splits, scale: loraScale });
  const outStride = padded(columns);
  return {
    name: `${rows}x${columns}x${k} mode ${mode} rank ${rank}${splits.length > 0 ? ` split at ${splits.join(', ')}` : ''}`,
    constants: matrixMatmulLoraConstants(k, rank),
    params: {
      rows,
      columns,
      xStride8: width / 8,
      xOffset8: 0,
      outStride4: outStride / 4,
      outOffset4: 0,
      mode,
      weightScale: testWeightScale(w),
      zStride4: ceilDiv(zWidth, 4),
      bStride4: bStride / 4,
      bOffset4: 1,
      split1: splits[0] ?? columns,
      split2: splits[1] ?? columns,
      loraScale,
    } satisfies MatrixMatmulLoraParams,
    grid: tallGrid(rows, columns),
    inputs: {
      x: roomy(packed, rows),
      scales,
      w: packBf16(w),
      z,
      b: shifted(b, rank, columns, bStride),
      ...(initial ? { out: withStride(initial, rows, columns, outStride) } : {}),
    },
    expected: { out: wideExpected(rows, columns, found, initial ? 0 : Number.NaN) },
  };
}

/**
 * Any number of rows; made for many. Views: packed x and its scales (matrix-pack), w bf16, z f32 [rows, zStride4 * 4],
 * b f32 [rank, columns]: the targets' B transposed, next to each other; out f32. With RANK4 0, z and b may be any buffers.
 */
export const matrixMatmulLora: QualifiedKernel = {
  name: 'matrix-matmul-lora',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'scales', access: 'read' },
    { name: 'w', access: 'read' },
    { name: 'z', access: 'read' },
    { name: 'b', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['xStride8', 'u32'],
    ['xOffset8', 'u32'],
    ['outStride4', 'u32'],
    ['outOffset4', 'u32'],
    ['mode', 'u32'],
    ['weightScale', 'f32'],
    ['zStride4', 'u32'],
    ['bStride4', 'u32'],
    ['bOffset4', 'u32'],
    ['split1', 'u32'],
    ['split2', 'u32'],
    ['loraScale', 'f32'],
  ],
  constants: { SUBS: 4, PANELS: 1, RANK4: 0 },
  cases: () => [
    loraProductCase(130, 257, 128, 0, 16, []),
    loraProductCase(129, 131, 64, 2, 4, [64]),
    loraProductCase(40, 140, 192, 0, 16, [36, 100]),
    loraProductCase(70, 200, 64, 2, 36, [128]),
    loraProductCase(66, 136, 64, 2, 0, []),
    loraProductCase(1, 24, 2048, 0, 64, [8, 16]),
  ],
};

/**
 * The same bits in larger tiles, which are faster where they leave less of the device idle. Views and scalars as for
 * `matrixMatmulLora`; k is a multiple of 64.
 */
export const matrixMatmulLoraWide: QualifiedKernel = {
  ...matrixMatmulLora,
  name: 'matrix-matmul-lora-wide',
  constants: { SUBS: 8, PANELS: 1, RANK4: 0 },
  cases: () =>
    (
      [
        [194, 257, 128, 0, 16, []],
        [193, 131, 64, 2, 4, [64]],
        [40, 140, 192, 0, 16, [36, 100]],
        [70, 200, 64, 2, 36, [128]],
        [1, 24, 2048, 0, 64, [8, 16]],
      ] as const
    ).map(([rows, columns, k, mode, rank, splits]) => ({
      ...loraProductCase(rows, columns, k, mode, rank, splits),
      constants: matrixMatmulLoraWideConstants(k, rank),
      grid: wideGrid(rows, columns),
    })),
};

/** Kernel, grid and pipeline constants of a linear layer of many rows: a choice of speed alone. */
export function manyLaunch(rows: number, columns: number, k: number, rank: number) {
  return wideIsFaster(rows, columns)
    ? {
        kernel: matrixMatmulLoraWide,
        grid: wideGrid(rows, columns),
        constants: matrixMatmulLoraWideConstants(k, rank),
      }
    : { kernel: matrixMatmulLora, grid: tallGrid(rows, columns), constants: matrixMatmulLoraConstants(k, rank) };
}
