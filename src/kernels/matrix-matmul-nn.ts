// out[m, c] = sum_n x[m, n] * w[n, c] with subgroup matrices: the gradient of a linear layer with respect to its input.
// Invariant: one f32 accumulator an output, n ascending by 16; the stored weight is read as the forward stores it.
import { type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import { packBf16, roundBf16, testValues, withStride } from './case-data.ts';
import { matmulMode } from './matmul.ts';
import { matrixReference, roomy, testWeightScale, wideExpected } from './matrix-cases.ts';
import { packReference } from './matrix-pack.ts';
import { packedWidth, tallConstants, tallGrid } from './matrix-tiles.ts';

/** A case; `skip` columns of x stand before the sum's, and others after it, which must take no part. */
function makeCase(rows: number, columns: number, n: number, mode: number, skip = 0): KernelCase {
  const scale = mode === matmulMode.continue ? 1 : 0.75;
  const all = skip + n + (skip > 0 ? 40 : 0);
  const w = roundBf16(testValues(n * columns, 93 + columns, 0.05));
  const width = packedWidth(all);
  const { packed, scales, values } = packReference(testValues(rows * all, 91 + rows), rows, all, width);
  const x = new Float64Array(rows * n);
  for (let m = 0; m < rows; m++) x.set(values.subarray(m * all + skip, m * all + skip + n), m * n);
  const initial = mode === matmulMode.overwrite ? null : testValues(rows * columns, 97);
  const found = matrixReference(x, (c, i) => w[i * columns + c]!, initial, { rows, columns, k: n, mode, scale });
  return {
    name: `${rows}x${columns}x${n} mode ${mode}${skip > 0 ? ' of a part' : ''}`,
    constants: tallConstants(n),
    params: {
      rows,
      columns,
      n,
      c8: columns / 8,
      xStride8: width / 8,
      xOffset8: skip / 8,
      outStride4: padded(columns) / 4,
      outOffset4: 0,
      mode,
      weightScale: testWeightScale(w),
      scale,
    },
    grid: tallGrid(rows, columns),
    inputs: {
      x: roomy(packed, rows),
      scales,
      w: packBf16(w),
      ...(initial ? { out: withStride(initial, rows, columns, padded(columns)) } : {}),
    },
    expected: { out: wideExpected(rows, columns, found, initial ? 0 : Number.NaN) },
  };
}

export const matrixMatmulNn: QualifiedKernel = {
  name: 'matrix-matmul-nn',
  bindings: [
    { name: 'x', access: 'read' },
    { name: 'scales', access: 'read' },
    { name: 'w', access: 'read' },
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
    ['scale', 'f32'],
  ],
  constants: { PANELS: 1 },
  cases: () => [
    makeCase(1, 8, 1, 0),
    makeCase(5, 64, 300, 0),
    makeCase(64, 200, 96, 1),
    makeCase(33, 136, 100, 2),
    makeCase(66, 136, 130, 0),
    makeCase(130, 264, 64, 1),
    makeCase(70, 64, 33, 2),
    makeCase(9, 72, 45, 1, 64),
  ],
};
