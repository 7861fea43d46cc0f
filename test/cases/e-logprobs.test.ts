// Public bug cases E1, E2 and E4, host side: temperature, truncation and padded vocabulary rows in log-probs.
import { describe, expect, it } from 'vitest';
import { lossWindow, policyLoss } from '../../src/grpo/losses.ts';
import { lossDefaults } from '../../src/kernels/loss-terms.ts';
import {
  logSoftmax,
  type SamplingOptions,
  sampledLogprobs,
  samplingDistribution,
} from '../../src/kernels/sampling-reference.ts';
import { logitGradient, tokenLogprobs } from '../../src/model/reference/logprobs.ts';
import { maxDifference } from '../support/golden.ts';
import { seededNumbers } from '../support/golden-model.ts';

const off: SamplingOptions = { temperature: 1, topK: 0, topP: 1, minP: 0 };

describe('E1: the temperature of sampled log-probs', () => {
  it('divides the logits, not the log-probs', () => {
    expect(maxDifference(logSoftmax([2, 1, 0], { temperature: 1 }), [-0.407606, -1.407606, -2.407606])).toBeLessThan(
      1e-6,
    );
    const halved = logSoftmax([2, 1, 0], { temperature: 0.5 });
    expect(maxDifference(halved, [-0.142932, -2.142932, -4.142932])).toBeLessThan(1e-6);
    expect(halved.reduce((sum, value) => sum + Math.exp(value), 0)).toBeCloseTo(1, 14);
  });

  it('is the same for sampler and trainer, so every ratio is 1 before an update', () => {
    const next = seededNumbers(41);
    const ids = [5, 2, 7, 7, 0, 3];
    const logits = Float64Array.from({ length: ids.length * 9 }, () => 6 * next());
    for (const temperature of [0.3, 0.6, 1, 1.7]) {
      const trained = tokenLogprobs(logits, ids, { temperature }).logprobs;
      const options = { ...off, temperature, topK: 3, topP: 0.8 };
      const recorded = [...trained].map(
        (_, t) => sampledLogprobs(logits.subarray(t * 9, t * 9 + 9), ids[t + 1]!, options).logprob,
      );
      expect([...trained]).toEqual(recorded);
    }
  });

  it('refuses greedy rollouts for training', () => {
    expect(() => logSoftmax([2, 1, 0], { temperature: 0 })).toThrowErrorMatchingInlineSnapshot(
      `[KernelError: computing log-probs: temperature is 0; it must be a finite number above 0. A greedy rollout has no log-probs to train on: sample at a temperature such as 1, or only evaluate.]`,
    );
    for (const temperature of [-1, Number.NaN, Number.POSITIVE_INFINITY])
      expect(() => logSoftmax([2, 1, 0], { temperature })).toThrow(/above 0/);
  });
});

describe('E2: truncated sampling', () => {
  it('records the full log-prob and the renormalised one apart', () => {
    const record = sampledLogprobs([3, 2, 1, 0], 0, { ...off, topK: 2 });
    expect(record.logprob).toBeCloseTo(-0.44019, 6);
    expect(record.truncatedLogprob).toBeCloseTo(-0.313262, 6);
    expect(record.keptMass).toBeCloseTo(0.880797, 6);
    expect(Math.exp(record.logprob - record.truncatedLogprob)).toBeCloseTo(record.keptMass, 12);
  });

  it('trains with ratio exactly 1 on what top-k, top-p or min-p sampled, by the full log-prob', () => {
    const logits = [3, 2, 1, 0];
    for (const filter of [{ topK: 2 }, { topP: 0.6 }, { minP: 0.3 }]) {
      const record = sampledLogprobs(logits, 0, { ...off, ...filter });
      const current = tokenLogprobs(Float64Array.from([...logits, ...logits]), [1, 0], { temperature: 1 }).logprobs;
      const batch = {
        rowStarts: [0, 1],
        mask: [1],
        truncated: null,
        logprobs: current,
        old: [record.logprob],
        sampled: [record.logprob],
        reference: null,
        advantages: [1],
        entropy: null,
      };
      const options = { ...lossDefaults, maskTruncated: false, maxCompletionLength: 1 };
      const { tallies } = policyLoss(batch, options, lossWindow([batch], options));
      expect([tallies.ratioMin, tallies.ratioMax]).toEqual([1, 1]);
      const wrong = policyLoss({ ...batch, old: [record.truncatedLogprob] }, options, lossWindow([batch], options));
      expect(wrong.tallies.ratioMax).toBeCloseTo(record.keptMass, 12);
      expect(record.keptMass).toBeLessThan(1);
    }
  });
});

describe('E4: padded vocabulary rows', () => {
  // A vocabulary of 8 rows of which the tokenizer knows 6; row 7 is the largest by far.
  const logits = [1, 0, 2, 0.5, 1.5, -1, 3, 40];
  const support = 6;

  it('are never sampled, greedy or not, whatever their logits', () => {
    for (const filter of [{}, { topK: 1 }, { topK: 7 }, { topP: 0.5 }, { minP: 0.2 }]) {
      const distribution = samplingDistribution(logits, { ...off, ...filter, support });
      expect([...distribution.slice(support)]).toEqual([0, 0]);
      expect(distribution.reduce((sum, p) => sum + p, 0)).toBeCloseTo(1, 14);
      expect(distribution.indexOf(Math.max(...distribution))).toBe(2);
    }
  });

  it('are outside the trainer’s softmax as well, so both sides agree', () => {
    const ids = [0, 2];
    const trained = tokenLogprobs(Float64Array.from([...logits, ...logits]), ids, { temperature: 0.7, support });
    const recorded = sampledLogprobs(logits, 2, { ...off, temperature: 0.7, support });
    expect(trained.logprobs[0]).toBe(recorded.logprob);
    expect(trained.logprobs[0]).toBe(logSoftmax(logits.slice(0, support), { temperature: 0.7 })[2]);
    expect(Number.isFinite(trained.entropy[0])).toBe(true);
  });

  it('get no gradient', () => {
    const gradient = logitGradient(Float64Array.from([...logits, ...logits]), [0, 2], [1], { temperature: 1, support });
    expect([...gradient.slice(support, 8)]).toEqual([-0, -0]);
    expect(gradient.slice(0, support).reduce((sum, g) => sum + g, 0)).toBeCloseTo(0, 14);
  });

  it('make a rollout that holds such an id refused, not a crash later', () => {
    const flat = Float64Array.from([...logits, ...logits]);
    expect(() => tokenLogprobs(flat, [0, 7], { temperature: 1, support })).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: computing log-probs: id 7 at position 1; the tokenizer knows 6 ids, the other logit rows are padding. Refuse the rollout: its sampler must mask those rows.]`,
    );
  });
});
