// Draws token ids on the GPU: temperature, top-k, top-p, min-p, then the inverse CDF at a Philox number of the row's key.
// Not the recorded training log-prob: that is `logprobs`. Invariant: id and log-prob depend on the row's logits, the
// settings and the row's key alone; which ids are kept is samplingDistribution's definition.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { KernelError } from '../lib/errors.ts';
import { type SampleKey, tokenUniform } from '../lib/rng.ts';
import { testValues, unit, withStride } from './case-data.ts';
import { expError, logError, rowGrid, scaledLogits } from './logprobs.ts';
import { type SamplingOptions, samplingDistribution } from './sampling-reference.ts';

/** The id of a row whose logits hold a NaN or an Infinity. */
export const noId = 0xffffffff;

/** Words of a row of `keys`. */
export const keyWords = 8;

/** Settings of a draw; temperature 0 is greedy (the lowest of the most likely ids; the filters are ignored). */
export type DrawSettings = Pick<SamplingOptions, 'temperature' | 'topK' | 'topP' | 'minP'>;

/**
 * The scalars of `sample` that the settings give. 1 - topP travels as a 64-bit fraction, so that the kernel's threshold
 * is exactly the f64 one. Throws KernelError for settings outside their range.
 */
export function sampleScalars({ temperature, topK, topP, minP }: DrawSettings): Record<string, number> {
  const fine =
    temperature >= 0 &&
    Number.isFinite(Math.fround(1 / (temperature || 1))) &&
    Number.isInteger(topK) &&
    topK >= 0 &&
    topP > 0 &&
    topP <= 1 &&
    minP >= 0 &&
    minP <= 1;
  if (!fine)
    throw new KernelError(
      'sampling-settings',
      `preparing a draw: found temperature ${temperature}, topK ${topK}, topP ${topP}, minP ${minP}; wanted ` +
        'temperature >= 0 (0 = greedy), an integer topK >= 0, 0 < topP <= 1, 0 <= minP <= 1. Correct the settings.',
    );
  const drop = (1 - topP) * 2 ** 32;
  const high = Math.min(Math.floor(drop), 0xffffffff);
  return {
    inverseTemperature: temperature === 0 ? 1 : 1 / temperature,
    greedy: temperature === 0 ? 1 : 0,
    topK,
    dropHigh: high,
    dropLow: Math.min(Math.floor((drop - high) * 2 ** 32), 0xffffffff),
    minLog: minP > 0 ? Math.log(minP) : -3.4e38,
  };
}

/** One row of `keys` [rows, 8]; a row that is not live is left as it is. */
export function keyRow(key: SampleKey, live = true): number[] {
  return [key.seed, key.step, key.group, key.member, key.position, live ? 1 : 0, 0, 0];
}

interface SampleReference {
  distribution: Float64Array;
  bounds: Float64Array;
  id: number;
  logprob: number;
  logprobBound: number;
  /** Distance of u from the nearest edge of the CDF, over the error that the CDF may have; above 1 the id is certain. */
  margin: number;
}

/**
 * The definition in f64 for one row of scaled logits x [vocabulary] and u in [0, 1). Bounds: exp for each weight, 2^-44
 * for its rounding to an integer, exact sums, then log and differences (log-prob) or a division (distribution).
 */
export function sampleReference(x: Float32Array, settings: DrawSettings, u: number): SampleReference {
  const top = x.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  if (settings.temperature === 0) {
    const id = x.indexOf(top);
    const distribution = new Float64Array(x.length).fill(1, id, id + 1);
    return { distribution, bounds: new Float64Array(x.length), id, logprob: 0, logprobBound: 0, margin: 2 };
  }
  const distribution = samplingDistribution(x, { ...settings, temperature: 1 });
  let sum = 0;
  let error = 3 * unit;
  for (let v = 0; v < x.length; v++) {
    if (distribution[v] === 0) continue;
    sum += Math.exp(x[v]! - top);
    error += distribution[v]! * expError(x[v]! - top) + 2 ** -44;
  }
  const bounds = distribution.map((p, v) => p * (expError(x[v]! - top) + error + 5 * unit) + (p > 0 ? 1e-37 : 0));
  let cumulative = 0;
  let id = -1;
  let margin = Number.POSITIVE_INFINITY;
  for (let v = 0; v < x.length; v++) {
    if (distribution[v] === 0) continue;
    cumulative += distribution[v]!;
    if (id < 0 && (u < cumulative || cumulative >= 1 - 1e-12)) id = v;
    if (cumulative < 1 - 1e-12) margin = Math.min(margin, Math.abs(u - cumulative) / (2 * error));
  }
  const d = x[id]! - top;
  const logprob = d - Math.log(sum);
  const logprobBound = error + logError(sum) + unit * (Math.abs(d) + Math.abs(logprob));
  return { distribution, bounds, id, logprob, logprobBound, margin };
}

interface SampleShape {
  rows: number;
  vocabulary: number;
  columns: number;
  settings: DrawSettings;
  special?: 'equal' | 'large' | 'idle' | 'peaked';
}

const plain: DrawSettings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const shapes: readonly SampleShape[] = [
  { rows: 1, vocabulary: 1, columns: 1, settings: plain },
  { rows: 3, vocabulary: 255, columns: 256, settings: plain },
  { rows: 2, vocabulary: 256, columns: 256, settings: { ...plain, topK: 7 } },
  { rows: 3, vocabulary: 257, columns: 300, settings: { ...plain, temperature: 0.7, topP: 0.8 } },
  { rows: 4, vocabulary: 320, columns: 320, settings: { temperature: 0.6, topK: 20, topP: 0.95, minP: 0.01 } },
  { rows: 2, vocabulary: 320, columns: 320, settings: { ...plain, topK: 5, topP: 0.9 }, special: 'equal' },
  { rows: 2, vocabulary: 320, columns: 321, settings: { ...plain, topP: 0.5, minP: 0.1 }, special: 'equal' },
  { rows: 2, vocabulary: 1000, columns: 1000, settings: { ...plain, topK: 100, topP: 0.99 }, special: 'large' },
  { rows: 2, vocabulary: 513, columns: 513, settings: { ...plain, topP: 0.3 }, special: 'peaked' },
  { rows: 4, vocabulary: 300, columns: 303, settings: { ...plain, temperature: 0 } },
  { rows: 5, vocabulary: 1023, columns: 1023, settings: { ...plain, minP: 0.2 }, special: 'idle' },
  { rows: 1, vocabulary: 151_669, columns: 151_936, settings: { temperature: 0.8, topK: 0, topP: 0.9, minP: 0 } },
];

/** The first key from `key` on whose number lies clear of every edge of the row's CDF. */
function clearKey(x: Float32Array, settings: DrawSettings, key: SampleKey): SampleKey {
  for (let position = key.position; position < key.position + 100; position++) {
    const candidate = { ...key, position };
    if (sampleReference(x, settings, tokenUniform(candidate)).margin > 1) return candidate;
  }
  throw new KernelError('bad-case', 'qualifying sample: no clear number in 100; choose other logits for this case.');
}

const rowOffset = 1;

function makeCase({ rows, vocabulary, columns, settings, special }: SampleShape): KernelCase {
  const stride = Math.ceil(columns / 4) * 4;
  const logits = testValues(rows * columns, 81 + columns, special === 'large' ? 250 : 0.12);
  if (special === 'equal') logits.fill(0.3);
  if (special === 'peaked') for (let r = 0; r < rows; r++) logits[r * columns + 17 * r] = 200;
  const keys = new Uint32Array((rowOffset + rows) * keyWords);
  const ids = new Uint32Array(rowOffset + rows).fill(noId);
  const logprobs = new Float64Array(rowOffset + rows).fill(Number.NaN);
  const logprobBounds = new Float64Array(rowOffset + rows);
  const distribution = new Float64Array(rows * vocabulary).fill(Number.NaN);
  const bounds = new Float64Array(rows * vocabulary);
  for (let r = 0; r < rows; r++) {
    logits.fill(1e30, r * columns + vocabulary, (r + 1) * columns);
    const key = { seed: 42, step: 3, group: 0xdeadbeef, member: r, position: 100 * r };
    const live = special !== 'idle' || r % 2 === 0;
    if (live) {
      const scaled = scaledLogits(
        logits.subarray(r * columns, r * columns + vocabulary),
        1 / (settings.temperature || 1),
      );
      const clear = clearKey(scaled, settings, key);
      const reference = sampleReference(scaled, settings, tokenUniform(clear));
      key.position = clear.position;
      ids[rowOffset + r] = reference.id;
      logprobs[rowOffset + r] = reference.logprob;
      logprobBounds[rowOffset + r] = reference.logprobBound;
      distribution.set(reference.distribution, r * vocabulary);
      bounds.set(reference.bounds, r * vocabulary);
    }
    keys.set(keyRow(key, live), (rowOffset + r) * keyWords);
  }
  const small = vocabulary < 2000;
  const { temperature, topK, topP, minP } = settings;
  return {
    name: `${rows} rows, ${vocabulary} of ${columns} ids, T ${temperature} k ${topK} p ${topP} min ${minP} ${special ?? ''}`,
    constants: { DISTRIBUTION: small ? 1 : 0 },
    params: { rows, vocabulary, stride, rowOffset, ...sampleScalars(settings) },
    grid: rowGrid(rows),
    inputs: { logits: withStride(logits, rows, columns, stride), keys },
    expected: {
      ids,
      logprobs: { values: logprobs, bounds: logprobBounds },
      ...(small ? { distribution: { values: distribution, bounds } } : {}),
    },
  };
}

/**
 * `ids` and `logprobs` [all rows] from rowOffset: what was drawn and its log-prob under the truncated distribution.
 * `distribution` [rows, vocabulary] is written only where the constant DISTRIBUTION is 1 (tests); else bind any buffer.
 */
export const sample: QualifiedKernel = {
  name: 'sample',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'keys', access: 'read' },
    { name: 'ids', access: 'read_write' },
    { name: 'logprobs', access: 'read_write' },
    { name: 'distribution', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride', 'u32'],
    ['rowOffset', 'u32'],
    ['inverseTemperature', 'f32'],
    ['greedy', 'u32'],
    ['topK', 'u32'],
    ['dropHigh', 'u32'],
    ['dropLow', 'u32'],
    ['minLog', 'f32'],
  ],
  constants: { DISTRIBUTION: 0 },
  cases: () => shapes.map(makeCase),
};
