// From gradients of probabilities to gradients of scores, in place: ds = scale * prob * (ds - <prob, ds>).
// Invariant: a row's bits depend on that row alone.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { type AttentionShape, attentionBatch, attentionShapes } from './attention-cases.ts';
import { rowHeadGrid } from './attention-softmax.ts';
import { testValues, unit } from './case-data.ts';

function makeCase(shape: AttentionShape): KernelCase {
  const batch = attentionBatch(shape);
  const { rows, heads, cacheLength } = batch;
  const prob = batch.s.map(Math.abs);
  const ds = testValues(batch.s.length, 81);
  const scale = Math.fround(0.3);
  const values = Float64Array.from(ds);
  const bounds = new Float64Array(values.length);
  for (let r = 0; r < rows; r++) {
    const length = batch.meta[r * 2 + 1]! + 1;
    for (let h = 0; h < heads; h++) {
      const base = (r * heads + h) * cacheLength;
      let sum = 0;
      let magnitude = 0;
      for (let j = 0; j < length; j++) {
        sum += prob[base + j]! * ds[base + j]!;
        magnitude += Math.abs(prob[base + j]! * ds[base + j]!);
      }
      for (let j = 0; j < length; j++) {
        const weight = Math.abs(scale * prob[base + j]!);
        values[base + j] = scale * prob[base + j]! * (ds[base + j]! - sum);
        bounds[base + j] = weight * (length + 8) * unit * (magnitude + Math.abs(ds[base + j]!)) + 1e-38;
      }
    }
  }
  return {
    name: `${rows} rows, ${heads} heads, ${cacheLength} keys`,
    params: { rows, rowOffset: 0, heads, sStride: cacheLength, scale },
    grid: rowHeadGrid(rows, heads),
    inputs: { meta: batch.meta, prob, ds },
    expected: { ds: { values, bounds } },
  };
}

export const attentionSoftmaxBackward: QualifiedKernel = {
  name: 'attention-softmax-backward',
  bindings: [
    { name: 'meta', access: 'read' },
    { name: 'prob', access: 'read' },
    { name: 'ds', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['rowOffset', 'u32'],
    ['heads', 'u32'],
    ['sStride', 'u32'],
    ['scale', 'f32'],
  ],
  cases: () => attentionShapes.map(makeCase),
};
