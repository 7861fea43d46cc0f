// out[m, c] = sum_n x[m, n] * w[n, c] + sum_r dz[m, r] * a[r, c]: the gradient of a fused linear layer with LoRA with
// respect to its input, in one product. Invariant: the product has matrix-matmul-nn's bits; the LoRA term has its own f32
// accumulator, r ascending over all targets.
import { ceilDiv, constantsOnce, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import { packBf16, roundBf16, testValues, withStride } from './case-data.ts';
import { matmulMode } from './matmul.ts';
import { matrixReference, roomy, testWeightScale, wideExpected } from './matrix-cases.ts';
import { addLora } from './matrix-matmul-lora.ts';
import { packReference } from './matrix-pack.ts';
import { packedWidth, tallConstants, tallTile } from './matrix-tiles.ts';

/** The scalars of `matrix-matmul-nn-lora`. */
export interface MatrixMatmulNnLoraParams extends Record<string, number> {
  rows: number;
  columns: number;
  n: number;
  c8: number;
  xStride8: number;
  xOffset8: number;
  outStride4: number;
  outOffset4: number;
  /** 0 overwrites, 1 continues the sum that stands in out (the next part of a matrix). */
  mode: number;
  weightScale: number;
  /** Quads of a row of dz, and of a row of a. */
  zStride4: number;
  aStride4: number;
  /** Quads of a slice's output; 0 where there is one slice. */
  sliceOut4: number;
}

const once = constantsOnce<string>();

/** Pipeline constants for a sum of `n` terms and `width` columns of dz in all (targets * rank); 0: no LoRA term. */
export function matrixMatmulNnLoraConstants(n: number, width: number) {
  return once(`${n} ${width}`, () => ({ ...tallConstants(n), WIDTH4: width / 4 }));
}

/** Slices of equal whole panels that a sum of `n` terms may be cut into, at most four. */
export function nnSlices(n: number): number {
  return [4, 3, 2].find((slices) => n % (32 * slices) === 0) ?? 1;
}

/** A case; the plain twin takes it with another grid. */
export function nnLoraCase(
  rows: number,
  columns: number,
  n: number,
  mode: number,
  width: number,
  slices = 1,
): KernelCase {
  const w = roundBf16(testValues(n * columns, 193 + columns, 0.05));
  const stride = packedWidth(n);
  const { packed, scales, values: x } = packReference(testValues(rows * n, 191 + rows), rows, n, stride);
  const initial = mode === matmulMode.overwrite ? null : testValues(rows * columns, 197);
  const shape = { rows, columns, k: n, mode, scale: 1 };
  const each = n / slices;
  const found = { values: new Float64Array(0), bounds: new Float64Array(0) };
  for (let s = 0; s < slices; s++) {
    const own = new Float64Array(rows * each);
    for (let m = 0; m < rows; m++) own.set(x.subarray(m * n + s * each, m * n + (s + 1) * each), m * each);
    const slice = matrixReference(own, (c, i) => w[(s * each + i) * columns + c]!, initial, { ...shape, k: each });
    found.values = Float64Array.of(...found.values, ...slice.values);
    found.bounds = Float64Array.of(...found.bounds, ...slice.bounds);
  }
  const dz = testValues(rows * width, 198);
  const a = testValues(width * columns, 199, 0.3);
  if (width > 0) addLora(found, dz, a, { rows, columns, rank: width, splits: [], scale: 1 });
  return {
    name: `${rows}x${columns}x${n} mode ${mode} width ${width}${slices > 1 ? ` in ${slices} slices` : ''}`,
    constants: matrixMatmulNnLoraConstants(each, width),
    params: {
      rows,
      columns,
      n,
      c8: columns / 8,
      xStride8: stride / 8,
      xOffset8: 0,
      outStride4: padded(columns) / 4,
      outOffset4: 0,
      mode,
      weightScale: testWeightScale(w),
      zStride4: width / 4,
      aStride4: columns / 4,
      sliceOut4: slices > 1 ? (rows * padded(columns)) / 4 : 0,
    } satisfies MatrixMatmulNnLoraParams,
    grid: [ceilDiv(columns, tallTile), ceilDiv(rows, tallTile), slices],
    inputs: {
      x: roomy(packed, rows),
      scales,
      w: packBf16(w),
      dz,
      a,
      ...(initial ? { out: withStride(initial, rows, columns, padded(columns)) } : {}),
    },
    expected: { out: wideExpected(slices * rows, columns, found, initial ? 0 : Number.NaN) },
  };
}

/**
 * Views: packed dOut and its scales, w bf16 as the forward stores it, dz f32 [rows, zStride4 * 4], a f32
 * [width, aStride4 * 4], dx f32. With WIDTH4 0, dz and a may be any buffers, and the grid's z may count
 * slices, each of 32 * PANELS rows of w (the whole of n together), mode 0.
 */
export const matrixMatmulNnLora: QualifiedKernel = {
  name: 'matrix-matmul-nn-lora',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'scales', access: 'read' },
    { name: 'w', access: 'read' },
    { name: 'dz', access: 'read' },
    { name: 'a', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['columns', 'u32'],
    ['n', 'u32'],
    ['c8', 'u32'],
    ['xStride8', 'u32'],
    ['xOffset8', 'u32'],
    ['outStride4', 'u32'],
    ['outOffset4', 'u32'],
    ['mode', 'u32'],
    ['weightScale', 'f32'],
    ['zStride4', 'u32'],
    ['aStride4', 'u32'],
    ['sliceOut4', 'u32'],
  ],
  constants: { PANELS: 1, WIDTH4: 0 },
  cases: () => [
    nnLoraCase(1, 8, 1, 0, 4),
    nnLoraCase(5, 64, 300, 0, 16),
    nnLoraCase(130, 264, 64, 1, 48),
    nnLoraCase(66, 136, 130, 0, 36),
    nnLoraCase(33, 136, 100, 1, 0),
    nnLoraCase(130, 72, 256, 0, 0, 4),
    nnLoraCase(129, 136, 64, 0, 0, 2),
  ],
};
