// Log-softmax, gather and entropy of a chunk of logits: the one kernel that sampler, reference and training log-probs
// come from. Not a loss and not a sampler. Invariant: a row's bits depend on its logits, its target and the temperature
// alone; padded head rows (ids >= vocabulary) take no part.
import { foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit, withStride } from './case-data.ts';

/** The target of a row that is not wanted: nothing is written for it. */
export const noTarget = 0xffffffff;

/** Grid of `logprobs`, `sample` and other kernels of one workgroup a row. */
export function rowGrid(rows: number): [number, number, number] {
  return foldedGrid(rows);
}

/** What `logprobs` writes for a row, each with its error bound: [top, logSum, logprob, entropy]. */
export interface RowStats {
  values: [number, number, number, number];
  bounds: [number, number, number, number];
}

/** Logits as the kernels scale them: one f32 product with the f32 inverse temperature. */
export function scaledLogits(logits: Float32Array, inverseTemperature: number): Float32Array<ArrayBuffer> {
  const factor = Math.fround(inverseTemperature);
  return Float32Array.from(logits, (logit) => Math.fround(logit * factor));
}

/** Relative error allowed for exp(d) where d is a rounded difference: WGSL's (3 + 2|d|) ULP, and the rounding of d. */
export function expError(d: number): number {
  return (6 + 5 * Math.abs(d)) * unit;
}

/** Error allowed for log(s) apart from that of s: 3 ULP, or 2^-21 absolute for s in [0.5, 2]. */
export function logError(s: number): number {
  return s >= 0.5 && s <= 2 ? 2 ** -21 : 6 * unit * Math.abs(Math.log(s));
}

/**
 * The definition in f64 for one row of scaled logits x [vocabulary]. Bounds: the two sums have ceil(vocabulary / 256) +
 * 256 terms in a chain, each with the error of exp; then log, one division (2.5 ULP) and the final differences.
 */
export function logprobsReference(x: Float32Array, target: number): RowStats {
  const top = x.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  let sum = 0;
  let sumError = 0;
  let weighted = 0;
  let magnitude = 0;
  let weightedError = 0;
  for (const value of x) {
    const d = value - top;
    const e = Math.exp(d);
    sum += e;
    sumError += e * expError(d);
    weighted += e * d;
    magnitude += Math.abs(e * d);
    weightedError += Math.abs(e * d) * (expError(d) + 2 * unit);
  }
  const chain = (Math.ceil(x.length / 256) + 256) * unit;
  const relative = sumError / sum + chain;
  const logSum = Math.log(sum);
  const logSumBound = relative + logError(sum);
  const logprob = x[target]! - top - logSum;
  const mean = weighted / sum;
  const meanBound = (weightedError + chain * magnitude) / sum + Math.abs(mean) * (relative + 5 * unit);
  const entropy = logSum - mean;
  return {
    values: [top, logSum, logprob, entropy],
    bounds: [
      0,
      logSumBound,
      logSumBound + unit * (Math.abs(x[target]! - top) + Math.abs(logprob)),
      logSumBound + meanBound + unit * Math.abs(entropy) + 1e-30,
    ],
  };
}

interface LogprobsShape {
  rows: number;
  vocabulary: number;
  columns: number;
  temperature: number;
  special: 'plain' | 'soft' | 'equal' | 'large' | 'skip';
}

/** Logits of a case [rows, columns]: outliers x40; columns past the vocabulary hold the largest values of all. */
export function caseLogits({ rows, vocabulary, columns, special }: LogprobsShape): Float32Array<ArrayBuffer> {
  const scale = { plain: 2, soft: 0.12, equal: 1, large: 250, skip: 1 }[special];
  const logits = testValues(rows * columns, 31 + columns, scale);
  if (special === 'equal') logits.fill(-7.25);
  for (let r = 0; r < rows; r++) logits.fill(1e30, r * columns + vocabulary, (r + 1) * columns);
  return logits;
}

export const logprobsShapes: readonly LogprobsShape[] = [
  { rows: 1, vocabulary: 1, columns: 1, temperature: 1, special: 'plain' },
  { rows: 3, vocabulary: 255, columns: 255, temperature: 0.6, special: 'plain' },
  { rows: 2, vocabulary: 256, columns: 256, temperature: 1, special: 'plain' },
  { rows: 2, vocabulary: 257, columns: 300, temperature: 0.7, special: 'soft' },
  { rows: 5, vocabulary: 320, columns: 320, temperature: 1.3, special: 'skip' },
  { rows: 2, vocabulary: 1000, columns: 1003, temperature: 1, special: 'large' },
  { rows: 2, vocabulary: 1023, columns: 1023, temperature: 1, special: 'equal' },
  { rows: 2, vocabulary: 1025, columns: 1025, temperature: 0.01, special: 'plain' },
  { rows: 1, vocabulary: 151_669, columns: 151_936, temperature: 1, special: 'soft' },
];

const rowOffset = 2;

function makeCase(shape: LogprobsShape): KernelCase {
  const { rows, vocabulary, columns, temperature, special } = shape;
  const stride = Math.ceil(columns / 4) * 4;
  const logits = caseLogits(shape);
  const targets = new Uint32Array(rowOffset + rows).fill(noTarget);
  const values = new Float64Array((rowOffset + rows) * 4).fill(Number.NaN);
  const bounds = new Float64Array((rowOffset + rows) * 4);
  for (let r = 0; r < rows; r++) {
    if (special === 'skip' && r % 2 === 1) continue;
    const target = (r * 7919 + vocabulary - 1) % vocabulary;
    targets[rowOffset + r] = target;
    const x = scaledLogits(logits.subarray(r * columns, r * columns + vocabulary), 1 / temperature);
    const reference = logprobsReference(x, target);
    values.set(reference.values, (rowOffset + r) * 4);
    bounds.set(reference.bounds, (rowOffset + r) * 4);
  }
  return {
    name: `${rows} rows, ${vocabulary} of ${columns} ids, T ${temperature}, ${special}`,
    params: { rows, vocabulary, stride, rowOffset, inverseTemperature: 1 / temperature },
    grid: rowGrid(rows),
    inputs: { logits: withStride(logits, rows, columns, stride), targets },
    expected: { stats: { values, bounds } },
  };
}

/**
 * `stats` [all rows, 4] = max of logits / T, log of the sum of exp(x - max), log-prob of the target, entropy (nats).
 * NaN where a logit is not finite or the target is >= vocabulary; untouched where the target is `noTarget`.
 */
export const logprobs: QualifiedKernel = {
  name: 'logprobs',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'targets', access: 'read' },
    { name: 'stats', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride', 'u32'],
    ['rowOffset', 'u32'],
    ['inverseTemperature', 'f32'],
  ],
  cases: () => logprobsShapes.map(makeCase),
};
