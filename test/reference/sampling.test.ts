// The sampler's f64 distribution against transformers' logits warpers: six settings, rows with ties, flat and peaked.
import { describe, expect, it } from 'vitest';
import { type SamplingOptions, sampledLogprobs, samplingDistribution } from '../../src/kernels/sampling-reference.ts';
import { goldenData, maxDifference, readGolden } from '../support/golden.ts';

const file = readGolden('sampling.safetensors');
const logits = goldenData(file, 'logits');
const settings = file.metadata['settings'] as Record<string, [number, number, number, number]>;
const rows = Array.from({ length: 8 }, (_, r) => r);
const off: SamplingOptions = { temperature: 1, topK: 0, topP: 1, minP: 0 };

describe.each(Object.entries(settings))(
  'the sampling distribution, setting %s',
  (name, [temperature, topK, topP, minP]) => {
    const expected = goldenData(file, `${name}.probs`);

    const slice = (values: Float64Array, r: number) => values.subarray(r * 320, (r + 1) * 320);
    const own = (r: number) => samplingDistribution(slice(logits, r), { temperature, topK, topP, minP });

    it.each(rows)('of row %i gives every logit value the mass that transformers gives it', (r) => {
      // Per distinct logit, not per id: which of several equal logits top-p keeps is arbitrary in torch.
      const byLogit = (distribution: Float64Array) => {
        const classes = new Map<number, number[]>();
        slice(logits, r).forEach((logit, id) => {
          classes.set(logit, [...(classes.get(logit) ?? []), distribution[id]!]);
        });
        return [...classes.values()].flatMap((probabilities) => probabilities.sort((a, b) => a - b));
      };
      const [actual, golden] = [byLogit(own(r)), byLogit(slice(expected, r))];
      expect(actual.map((p) => p > 0)).toEqual(golden.map((p) => p > 0));
      expect(maxDifference(actual, golden)).toBeLessThanOrEqual(1e-14);
    });

    it.each(rows)('of row %i has the probabilities of transformers at every id, unless top-p splits a tie', (r) => {
      const golden = slice(expected, r);
      const split = slice(logits, r).some((a, i) =>
        slice(logits, r).some((b, j) => a === b && golden[i]! > 0 !== golden[j]! > 0),
      );
      if (!split) expect(maxDifference(own(r), golden)).toBeLessThanOrEqual(1e-14);
      else expect([3, 4, 6]).toContain(r);
    });
  },
);

describe('tie rules of the sampling distribution', () => {
  const kept = (values: number[], options: Partial<SamplingOptions>) =>
    [...samplingDistribution(values, { ...off, ...options })].flatMap((p, id) => (p > 0 ? [id] : []));

  it('top-k keeps every id tied with the k-th largest', () => {
    expect(kept([1, 5, 5, 0, 5], { topK: 2 })).toEqual([1, 2, 4]);
  });
  it('top-p drops the higher ids of equal probabilities first', () => {
    expect(kept([0, 0, 0, 0], { topP: 0.5 })).toEqual([0, 1]);
    expect(kept([0, 0, 0, 0], { topP: 0.51 })).toEqual([0, 1, 2]);
  });
  it('top-p always keeps one id', () => {
    expect(kept([0, 3, 0], { topP: 1e-9 })).toEqual([1]);
  });
  it('min-p keeps an id that lies exactly on the threshold', () => {
    expect(kept([0, Math.log(0.5), -5], { minP: Math.exp(Math.log(0.5)) })).toEqual([0, 1]);
  });
  it('a k above the vocabulary keeps everything', () => {
    expect(kept([1, 2, 3], { topK: 20 })).toEqual([0, 1, 2]);
  });
  it('refuses filters outside their range', () => {
    expect(() => samplingDistribution([1, 2], { ...off, topP: 0 })).toThrowErrorMatchingInlineSnapshot(
      `[KernelError: filtering logits: found topK 0, topP 0, minP 0; wanted an integer topK >= 0, 0 < topP <= 1, 0 <= minP <= 1. Use 0, 1 and 0 to switch them off.]`,
    );
    expect(() => samplingDistribution([1, 2], { ...off, topK: 1.5 })).toThrow(/topK 1.5/);
    expect(() => samplingDistribution([1, 2], { ...off, minP: Number.NaN })).toThrow(/minP NaN/);
  });
});

it('an id that was filtered out has a full log-prob and no truncated one', () => {
  const { logprob, truncatedLogprob, keptMass } = sampledLogprobs([3, 2, 1, 0], 3, { ...off, topK: 2 });
  expect(logprob).toBeCloseTo(-3.44019, 5);
  expect(truncatedLogprob).toBe(Number.NEGATIVE_INFINITY);
  expect(keptMass).toBeCloseTo(0.880797, 6);
});
