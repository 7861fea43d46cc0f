// dLoss/dlogits from dLoss/dlogprob as packed f16 rows: logprobs-backward and matrix-pack in one pass over the logits.
// Not matrix-pack's scale: it follows from the target's log-prob, not from the row's maximum. Invariant: a row's bits
// depend on its logits, statistics and gradient alone; padded ids, masked rows and rows without a target get zeros.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { withStride } from './case-data.ts';
import { caseLogits, logprobsReference, logprobsShapes, noTarget, scaledLogits } from './logprobs.ts';
import { logprobsBackwardReference } from './logprobs-backward.ts';
import { packedWidth } from './matrix-tiles.ts';

/** Grid of `logprobs-backward-pack`: one thread eight columns of a packed row of `width` elements; rows in y. */
export function logprobsBackwardPackGrid(rows: number, width: number): [number, number, number] {
  return [ceilDiv(width / 8, 256), rows, 1];
}

/** The scale of a row: 2^-e with the largest possible gradient, times 2^e, in [2^14, 2^15). */
function scaleOf(g: number, logprob: number): number {
  const bound = Math.abs(g) * Math.max(1 - Math.exp(logprob), 2 ** -8);
  return 2 ** -Math.min(126, 14 - Math.floor(Math.log2(bound)));
}

/** A case. Bound: that of `logprobs-backward`, in the row's scale, and half a unit of f16. */
function makeCase(shape: (typeof logprobsShapes)[number]): KernelCase {
  const { rows, vocabulary, columns, temperature, special } = shape;
  const stride = Math.ceil(columns / 4) * 4;
  const width = packedWidth(columns);
  const rowOffset = 1;
  const logits = caseLogits(shape);
  const targets = new Uint32Array(rowOffset + rows).fill(noTarget);
  const stats = new Float32Array((rowOffset + rows) * 4);
  const gradient = new Float32Array(rowOffset + rows);
  const values = new Float64Array(rows * width);
  const bounds = new Float64Array(rows * width);
  const scales = new Float32Array(rows).fill(1);
  for (let r = 0; r < rows; r++) {
    const target = (r * 7919 + vocabulary - 1) % vocabulary;
    const g = Math.fround((r % 2 === 0 ? 1.75 : -0.3) / (r + 1));
    gradient[rowOffset + r] = special === 'skip' && r === 2 ? 0 : g;
    if (special === 'skip' && (r === 1 || r === 2)) continue;
    targets[rowOffset + r] = target;
    const x = scaledLogits(logits.subarray(r * columns, r * columns + vocabulary), 1 / temperature);
    stats.set(logprobsReference(x, target).values, (rowOffset + r) * 4);
    const [top, logSum, logprob] = stats.subarray((rowOffset + r) * 4);
    const scale = scaleOf(g * Math.fround(1 / temperature), logprob!);
    scales[r] = scale;
    const row = logprobsBackwardReference(x, target, top!, logSum!, g, 1 / temperature);
    for (let v = 0; v < vocabulary; v++) {
      const value = row.values[v]! / scale;
      values[r * width + v] = value;
      bounds[r * width + v] = row.bounds[v]! / scale + Math.max(Math.abs(value) * 2 ** -11, 2 ** -25) * 1.001;
    }
  }
  return {
    name: `${rows} rows, ${vocabulary} of ${columns} ids, T ${temperature}, ${special}`,
    params: {
      rows,
      vocabulary,
      stride4: stride / 4,
      packed4: width / 8,
      rowOffset,
      inverseTemperature: 1 / temperature,
    },
    grid: logprobsBackwardPackGrid(rows, width),
    inputs: { targets, stats, gradient, logits: withStride(logits, rows, columns, stride, 1e30) },
    expected: { packed: { values, bounds, halves: true }, scales: new Uint32Array(scales.buffer) },
  };
}

/** `stats` are those that `logprobs` wrote; `packed` [rows, packed4 * 8] f16 and `scales` [rows] are what products take. */
export const logprobsBackwardPack: QualifiedKernel = {
  name: 'logprobs-backward-pack',
  bindings: [
    { name: 'targets', access: 'read' },
    { name: 'stats', access: 'read' },
    { name: 'gradient', access: 'read' },
    { name: 'logits', access: 'read' },
    { name: 'packed', access: 'read_write' },
    { name: 'scales', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride4', 'u32'],
    ['packed4', 'u32'],
    ['rowOffset', 'u32'],
    ['inverseTemperature', 'f32'],
  ],
  cases: () => logprobsShapes.map(makeCase),
};
