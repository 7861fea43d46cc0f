// The gradient of qk-norm-rope with respect to the raw q, k and v of a row.
// Invariant: one thread owns a head; d ascending.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';
import { type HeadShape, headCase, headParams, qkNormRopeGrid } from './qk-norm-rope.ts';

/** A case for `rows` rows of heads of a shape. */
export function gradientCase(shape: HeadShape, rows: number, norm: boolean): KernelCase {
  const data = headCase(shape, rows);
  const { heads, kvHeads, headDim } = shape;
  const half = headDim / 2;
  const dq = testValues(rows * heads * headDim, 111);
  const dk = testValues(2 * data.cacheLength * kvHeads * headDim, 112);
  const dv = testValues(2 * data.cacheLength * kvHeads * headDim, 113);
  const values = new Float64Array(rows * data.rawStride);
  const bounds = new Float64Array(rows * data.rawStride);
  for (let r = 0; r < rows; r++) {
    const position = data.meta[r * 2 + 1]!;
    const cache = (data.meta[r * 2]! * data.cacheLength + position) * kvHeads * headDim;
    for (let h = 0; h < heads + 2 * kvHeads; h++) {
      const base = r * data.rawStride + h * headDim;
      if (h >= heads + kvHeads) {
        for (let d = 0; d < headDim; d++) values[base + d] = dv[cache + (h - heads - kvHeads) * headDim + d]!;
        continue;
      }
      const isK = h >= heads;
      const gain = data.gain.subarray(isK ? headDim : 0);
      const incoming = isK ? dk.subarray(cache + (h - heads) * headDim) : dq.subarray((r * heads + h) * headDim);
      const dn = new Float64Array(headDim);
      const magnitude = new Float64Array(headDim);
      for (let i = 0; i < half; i++) {
        const cos = data.rope[position * headDim + i * 2]!;
        const sin = data.rope[position * headDim + i * 2 + 1]!;
        dn[i] = incoming[i]! * cos + incoming[i + half]! * sin;
        dn[i + half] = incoming[i + half]! * cos - incoming[i]! * sin;
        magnitude[i] = Math.abs(incoming[i]! * cos) + Math.abs(incoming[i + half]! * sin);
        magnitude[i + half] = Math.abs(incoming[i + half]! * cos) + Math.abs(incoming[i]! * sin);
      }
      const x = data.raw.subarray(base, base + headDim);
      const inverse = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / headDim + 1e-6);
      let product = 0;
      let size = 0;
      for (let d = 0; d < headDim; d++) {
        product += gain[d]! * dn[d]! * x[d]!;
        size += Math.abs(gain[d]! * x[d]!) * magnitude[d]!;
      }
      for (let d = 0; d < headDim; d++) {
        const pull = (x[d]! * inverse ** 3) / headDim;
        values[base + d] = norm ? inverse * gain[d]! * dn[d]! - pull * product : dn[d]!;
        // The cube of the inverse triples its relative error (headDim / 2 + 8); the product sums headDim terms.
        const terms = norm ? Math.abs(inverse * gain[d]!) * magnitude[d]! + Math.abs(pull) * size : magnitude[d]!;
        bounds[base + d] = (norm ? 3 * headDim + 40 : 4) * unit * terms + 1e-38;
      }
    }
  }
  return {
    name: `${rows} rows, ${heads}/${kvHeads} heads of ${headDim}${norm ? ', normalised' : ''}`,
    constants: { NORM: norm ? 1 : 0 },
    params: data.params,
    grid: qkNormRopeGrid(rows, shape),
    inputs: { raw: data.raw, gain: data.gain, rope: data.rope, meta: data.meta, dq, dk, dv },
    expected: { dRaw: { values, bounds } },
  };
}

export const qkNormRopeBackward: QualifiedKernel = {
  name: 'qk-norm-rope-backward',
  bindings: [
    { name: 'raw', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'rope', access: 'read' },
    { name: 'meta', access: 'read' },
    { name: 'dq', access: 'read' },
    { name: 'dk', access: 'read' },
    { name: 'dv', access: 'read' },
    { name: 'dRaw', access: 'read_write' },
  ],
  params: headParams,
  constants: { NORM: 1 },
  cases: () => [
    gradientCase({ heads: 1, kvHeads: 1, headDim: 4 }, 1, true),
    gradientCase({ heads: 4, kvHeads: 2, headDim: 32 }, 9, true),
    gradientCase({ heads: 3, kvHeads: 1, headDim: 64 }, 13, false),
  ],
};
