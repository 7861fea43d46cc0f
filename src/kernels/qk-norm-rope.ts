// Splits q, k and v, normalises and rotates q and k per head, and writes k and v to the cache.
// Not attention. Invariant: what is written for a row depends on that row, its slot and its position alone.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';

export interface HeadShape {
  heads: number;
  kvHeads: number;
  headDim: number;
}

/** Grid of `qk-norm-rope` and its backward: one thread a (row, head of q, k or v). */
export function qkNormRopeGrid(rows: number, shape: HeadShape): [number, number, number] {
  return foldedGrid(ceilDiv(rows * (shape.heads + 2 * shape.kvHeads), 64));
}

export const headParams = [
  ['rows', 'u32'],
  ['heads', 'u32'],
  ['kvHeads', 'u32'],
  ['headDim', 'u32'],
  ['rawStride', 'u32'],
  ['qStride', 'u32'],
  ['cacheLength', 'u32'],
  ['kvStride', 'u32'],
  ['eps', 'f32'],
] as const;

/** Cosines and sines of a case, [positions, headDim / 2, 2]. */
export function ropeTable(positions: number, headDim: number): Float32Array<ArrayBuffer> {
  const rope = new Float32Array(positions * headDim);
  for (let t = 0; t < positions; t++) {
    for (let i = 0; i < headDim / 2; i++) {
      const angle = t * 10000 ** ((-2 * i) / headDim);
      rope[t * headDim + i * 2] = Math.cos(angle);
      rope[t * headDim + i * 2 + 1] = Math.sin(angle);
    }
  }
  return rope;
}

/** Inputs shared by the forward and backward cases: rows of two slots at scattered positions. */
export function headCase(shape: HeadShape, rows: number) {
  const { heads, kvHeads, headDim } = shape;
  // 16 and a step of 5: no two of at most 16 rows share a place, which would be a race.
  const cacheLength = 16;
  const rawStride = (heads + 2 * kvHeads) * headDim;
  const meta = Uint32Array.from({ length: rows * 2 }, (_, i) =>
    i % 2 === 0 ? (i >> 1) % 2 : ((i >> 1) * 5) % cacheLength,
  );
  const rope = ropeTable(cacheLength, headDim);
  return {
    cacheLength,
    rawStride,
    meta,
    rope,
    raw: testValues(rows * rawStride, 101),
    gain: testValues(2 * headDim, 102, 1.5),
    params: {
      rows,
      ...shape,
      rawStride,
      qStride: heads * headDim,
      cacheLength,
      kvStride: kvHeads * headDim,
      eps: 1e-6,
    },
  };
}

function makeCase(shape: HeadShape, rows: number, norm: boolean): KernelCase {
  const data = headCase(shape, rows);
  const { heads, kvHeads, headDim } = shape;
  const half = headDim / 2;
  const cacheSize = 2 * data.cacheLength * kvHeads * headDim;
  const outputs = {
    q: {
      values: new Float64Array(rows * heads * headDim).fill(Number.NaN),
      bounds: new Float64Array(rows * heads * headDim),
    },
    k: { values: new Float64Array(cacheSize).fill(Number.NaN), bounds: new Float64Array(cacheSize) },
    v: { values: new Float64Array(cacheSize).fill(Number.NaN), bounds: new Float64Array(cacheSize) },
  };
  for (let r = 0; r < rows; r++) {
    const position = data.meta[r * 2 + 1]!;
    const cache = (data.meta[r * 2]! * data.cacheLength + position) * kvHeads * headDim;
    for (let h = 0; h < heads + 2 * kvHeads; h++) {
      const x = data.raw.subarray(r * data.rawStride + h * headDim, r * data.rawStride + (h + 1) * headDim);
      if (h >= heads + kvHeads) {
        for (let d = 0; d < headDim; d++) outputs.v.values[cache + (h - heads - kvHeads) * headDim + d] = x[d]!;
        continue;
      }
      const isK = h >= heads;
      const gain = data.gain.subarray(isK ? headDim : 0);
      const inverse = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / headDim + 1e-6);
      const n = Array.from(x, (value, d) => (norm ? gain[d]! * value * inverse : value));
      const out = isK ? outputs.k : outputs.q;
      const at = isK ? cache + (h - heads) * headDim : r * heads * headDim + h * headDim;
      // Relative error of n: half the sum's (headDim / 2), 2 ULP of inverseSqrt, the roundings; then two products.
      const relative = (norm ? headDim / 2 + 14 : 4) * unit;
      for (let i = 0; i < half; i++) {
        const cos = data.rope[position * headDim + i * 2]!;
        const sin = data.rope[position * headDim + i * 2 + 1]!;
        out.values[at + i] = n[i]! * cos - n[i + half]! * sin;
        out.values[at + i + half] = n[i + half]! * cos + n[i]! * sin;
        out.bounds[at + i] = relative * (Math.abs(n[i]! * cos) + Math.abs(n[i + half]! * sin)) + 1e-38;
        out.bounds[at + i + half] = relative * (Math.abs(n[i + half]! * cos) + Math.abs(n[i]! * sin)) + 1e-38;
      }
    }
  }
  return {
    name: `${rows} rows, ${heads}/${kvHeads} heads of ${headDim}${norm ? ', normalised' : ''}`,
    constants: { NORM: norm ? 1 : 0 },
    params: data.params,
    grid: qkNormRopeGrid(rows, shape),
    inputs: { raw: data.raw, gain: data.gain, rope: data.rope, meta: data.meta },
    expected: outputs,
  };
}

export const qkNormRope: QualifiedKernel = {
  name: 'qk-norm-rope',
  bindings: [
    { name: 'raw', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'rope', access: 'read' },
    { name: 'meta', access: 'read' },
    { name: 'q', access: 'read_write' },
    { name: 'k', access: 'read_write' },
    { name: 'v', access: 'read_write' },
  ],
  params: headParams,
  constants: { NORM: 1 },
  cases: () => [
    makeCase({ heads: 1, kvHeads: 1, headDim: 4 }, 1, true),
    makeCase({ heads: 4, kvHeads: 2, headDim: 32 }, 9, true),
    makeCase({ heads: 3, kvHeads: 1, headDim: 64 }, 13, false),
    makeCase({ heads: 2, kvHeads: 2, headDim: 128 }, 11, true),
  ],
};
