// dLoss/dlogits from dLoss/dlogprob, in place on the chunk of logits.
// Not a reduction: the row's statistics come from `logprobs`. Invariant: padded ids, masked rows and rows without a
// target get exact zeros.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { unit, withStride } from './case-data.ts';
import { caseLogits, logprobsReference, logprobsShapes, noTarget, scaledLogits } from './logprobs.ts';

/** Grid of `logprobs-backward`: one thread four columns of a row of stride `stride4` * 4. */
export function logprobsBackwardGrid(rows: number, stride4: number): [number, number, number] {
  return foldedGrid(ceilDiv(rows * stride4, 64));
}

/**
 * The definition in f64 for one row: scaled logits x [vocabulary], the f32 statistics, g = dLoss/dlogprob.
 * Bound: exp of a difference of two roundings, then three products and differences.
 */
export function logprobsBackwardReference(
  x: Float32Array,
  target: number,
  top: number,
  logSum: number,
  g: number,
  inverseTemperature: number,
): { values: Float64Array; bounds: Float64Array } {
  const values = new Float64Array(x.length);
  const bounds = new Float64Array(x.length);
  const factor = g * Math.fround(inverseTemperature);
  for (let v = 0; v < x.length; v++) {
    const z = x[v]! - top - logSum;
    const p = Math.exp(z);
    const error = p * (6 + 5 * Math.abs(z) + Math.abs(x[v]! - top)) * unit;
    const difference = (v === target ? 1 : 0) - p;
    values[v] = factor * difference;
    bounds[v] = Math.abs(factor) * (error + 3 * unit * Math.abs(difference)) + 1e-37;
  }
  return { values, bounds };
}

function makeCase(shape: (typeof logprobsShapes)[number]): KernelCase {
  const { rows, vocabulary, columns, temperature, special } = shape;
  const stride = Math.ceil(columns / 4) * 4;
  const rowOffset = 1;
  const logits = caseLogits(shape);
  const targets = new Uint32Array(rowOffset + rows).fill(noTarget);
  const stats = new Float32Array((rowOffset + rows) * 4);
  const gradient = new Float32Array(rowOffset + rows);
  const values = new Float64Array(rows * stride);
  const bounds = new Float64Array(rows * stride);
  for (let r = 0; r < rows; r++) {
    const target = (r * 7919 + vocabulary - 1) % vocabulary;
    const g = Math.fround((r % 2 === 0 ? 1.75 : -0.3) / (r + 1));
    gradient[rowOffset + r] = special === 'skip' && r === 2 ? 0 : g;
    if (special === 'skip' && r === 1) continue;
    targets[rowOffset + r] = target;
    const x = scaledLogits(logits.subarray(r * columns, r * columns + vocabulary), 1 / temperature);
    stats.set(logprobsReference(x, target).values, (rowOffset + r) * 4);
    const [top, logSum] = stats.subarray((rowOffset + r) * 4);
    const row = logprobsBackwardReference(x, target, top!, logSum!, gradient[rowOffset + r]!, 1 / temperature);
    values.set(row.values, r * stride);
    bounds.set(row.bounds, r * stride);
  }
  return {
    name: `${rows} rows, ${vocabulary} of ${columns} ids, T ${temperature}, ${special}`,
    params: { rows, vocabulary, stride4: stride / 4, rowOffset, inverseTemperature: 1 / temperature },
    grid: logprobsBackwardGrid(rows, stride / 4),
    inputs: { targets, stats, gradient, logits: withStride(logits, rows, columns, stride, 1e30) },
    expected: { logits: { values, bounds } },
  };
}

/** In place: logits [rows, stride4 * 4] become their gradient. `stats` are those that `logprobs` wrote. */
export const logprobsBackward: QualifiedKernel = {
  name: 'logprobs-backward',
  bindings: [
    { name: 'targets', access: 'read' },
    { name: 'stats', access: 'read' },
    { name: 'gradient', access: 'read' },
    { name: 'logits', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride4', 'u32'],
    ['rowOffset', 'u32'],
    ['inverseTemperature', 'f32'],
  ],
  cases: () => logprobsShapes.map(makeCase),
};
