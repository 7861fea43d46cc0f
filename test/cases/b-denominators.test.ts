// Public bug case B2: the loss divides by the tokens that its numerator sums over, and no others.
import { describe, expect, it } from 'vitest';
import { lossMetrics } from '../../src/grpo/loss-tallies.ts';
import { type LossBatch, type LossOptions, lossWindow, policyLoss } from '../../src/grpo/losses.ts';
import { type LossKind, lossDefaults, lossKinds } from '../../src/kernels/loss-terms.ts';

const tokenMean: LossKind[] = ['bnpo', 'dapo', 'dppo_tv', 'dppo_kl'];
const options = (kind: LossKind, maskTruncated: boolean): LossOptions => ({
  ...lossDefaults,
  kind,
  maskTruncated,
  maxCompletionLength: 30,
});

/** On-policy rows whose every sampled token has loss 1: ratio 1 and advantage -1. `mask` per row. */
function rows(masks: number[][], truncated: boolean[]): LossBatch {
  const flat = masks.flat();
  const logprobs = flat.map((_, i) => -1 - i / 100);
  const rowStarts = [0];
  for (const mask of masks) rowStarts.push(rowStarts.at(-1)! + mask.length);
  return {
    rowStarts,
    mask: flat,
    truncated,
    logprobs,
    old: logprobs,
    sampled: logprobs,
    reference: logprobs.map((value) => value + 0.5),
    advantages: masks.map(() => -1),
    entropy: flat.map(() => 2),
  };
}
const ones = (n: number) => new Array<number>(n).fill(1);
const loss = (batch: LossBatch, o: LossOptions) => policyLoss(batch, o, lossWindow([batch], o));

describe.each(tokenMean)('B2 with %s', (kind) => {
  const masked = options(kind, true);

  it('is 25/25, not 25/30, when 5 of 30 tokens are in an excluded member', () => {
    const batch = rows([ones(12), ones(13), ones(5)], [false, false, true]);
    expect(lossWindow([batch], masked).tokens).toBe(25);
    expect(loss(batch, masked).loss).toBeCloseTo(1, 14);
  });

  it('divides by 30 sampled tokens, whatever 12 tool tokens among them hold', () => {
    const mask = [...ones(10), ...new Array<number>(12).fill(0), ...ones(20)];
    const batch = rows([mask], [false]);
    const poisoned = (batch.logprobs as number[]).map((value, i) => (mask[i] ? value : Number.NaN));
    const result = loss({ ...batch, logprobs: poisoned, old: poisoned, sampled: poisoned, entropy: poisoned }, masked);
    expect(lossWindow([batch], masked).tokens).toBe(30);
    expect(result.loss).toBeCloseTo(1, 14);
    expect(result.gradient.every((g, i) => (mask[i] === 0 ? g === 0 : Math.abs(g - 1 / 30) < 1e-15))).toBe(true);
  });
});

describe.each(lossKinds)('B2 with %s', (kind) => {
  const withKl = { ...options(kind, true), beta: 0.1 };
  const batch = rows([ones(12), [0, 0, ...ones(11)], ones(5)], [false, false, true]);

  it('uses the same mask for KL, entropy and ratio metrics', () => {
    const { tallies } = loss(batch, withKl);
    const metrics = lossMetrics(tallies, kind, withKl.beta);
    expect(tallies.tokens).toBe(23);
    expect(metrics['kl']).toBeCloseTo(Math.exp(0.5) - 1.5, 12);
    expect(metrics['entropy']).toBe(2);
    expect(metrics['policy_ratio/mean']).toBe(1);
  });

  it('is not moved by what an excluded member holds', () => {
    const spoilt = { ...batch, logprobs: (batch.logprobs as number[]).map((v, i) => (i >= 25 ? v - 3 : v)) };
    const [clean, moved] = [loss(batch, withKl), loss(spoilt, withKl)];
    expect(moved.loss).toBe(clean.loss);
    expect([...moved.gradient]).toEqual([...clean.gradient]);
    expect(moved.tallies).toEqual(clean.tallies);
  });

  it('is the same whether a window is one batch or two micro-batches of equal size', () => {
    const masks = [ones(6), ones(9), ones(6), ones(9)];
    const whole = rows(masks, [false, false, false, false]);
    const half = (start: number): LossBatch => {
      const cut = (values: ArrayLike<number> | null) => Array.from(values!).slice(start * 15, (start + 1) * 15);
      return {
        ...rows(masks.slice(0, 2), [false, false]),
        logprobs: cut(whole.logprobs),
        old: cut(whole.old),
        sampled: cut(whole.sampled),
        reference: cut(whole.reference),
      };
    };
    const halves = [half(0), half(1)];
    const window = lossWindow(halves, withKl);
    expect(window).toEqual({ rows: 4, tokens: 30, microBatches: 2 });
    const parts = halves.map((part) => policyLoss(part, withKl, window));
    const one = loss(whole, withKl);
    expect(parts[0]!.loss + parts[1]!.loss).toBeCloseTo(one.loss, 13);
    const gradient = parts.flatMap((part) => [...part.gradient]);
    gradient.forEach((g, i) => {
      expect(g).toBeCloseTo(one.gradient[i]!, 14);
    });
  });

  it('is 0, not NaN, where every row is excluded', () => {
    const none = rows([ones(3), ones(4)], [true, true]);
    const result = loss(none, withKl);
    expect(result.loss).toBe(0);
    expect([...result.gradient]).toEqual([0, 0, 0, 0, 0, 0, 0]);
    expect(lossMetrics(result.tallies, kind, 0.1)).toEqual({});
  });
});

describe('B2: fully excluded rows', () => {
  it('still count as rows of grpo and dr_grpo', () => {
    const batch = rows([ones(10), ones(5)], [false, true]);
    expect(loss(batch, options('grpo', true)).loss).toBeCloseTo(0.5, 14);
    expect(loss(batch, options('dr_grpo', true)).loss).toBeCloseTo(10 / 60, 14);
  });
});
