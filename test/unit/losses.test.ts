// The loss of every kind by central differences, the branches that the golden batch does not reach, and bad input.
import { describe, expect, it } from 'vitest';
import { lossMetrics, mergeTallies } from '../../src/grpo/loss-tallies.ts';
import { type LossBatch, type LossOptions, lossWindow, policyLoss } from '../../src/grpo/losses.ts';
import { binaryDivergence, type LossKind, lossDefaults, lossKinds, tokenTerm } from '../../src/kernels/loss-terms.ts';
import { maxDifference } from '../support/golden.ts';
import { seededNumbers } from '../support/golden-model.ts';

const plain = (kind: LossKind): LossOptions => ({
  ...lossDefaults,
  kind,
  maskTruncated: false,
  maxCompletionLength: 9,
});
const next = seededNumbers(99);
const draw = (n: number, scale: number, offset = 0) => Array.from({ length: n }, () => offset + scale * next());
const logprobs = draw(30, 1, -1.5);
const batch: LossBatch = {
  rowStarts: [0, 9, 15, 15, 24, 30],
  mask: Array.from({ length: 30 }, (_, i) => (i % 7 === 3 ? 0 : 1)),
  truncated: null,
  logprobs,
  old: logprobs.map((value) => value + 0.8 * next()),
  sampled: logprobs.map((value) => Math.min(-0.01, value + 0.6 * next())),
  reference: logprobs.map((value) => value + 0.7 * next()),
  advantages: [1.3, -0.7, 0.2, -1.1, 0],
  entropy: null,
};
const run = (b: LossBatch, o: LossOptions) => policyLoss(b, o, lossWindow([b], o));

const settings: [string, Partial<LossOptions>][] = [
  ['plain', {}],
  ['KL', { beta: 0.3 }],
  ['bias-corrected KL', { beta: 0.3, klBiasCorrection: true }],
  ['delta above the clip', { delta: 1.35 }],
  ['delta inside the clip', { delta: 1.05, beta: 0.1, klBiasCorrection: true }],
  ['asymmetric clip', { epsilonLow: 0.1, epsilonHigh: 0.28 }],
];

describe.each(lossKinds.filter((kind) => kind !== 'cispo'))('dLoss/dlogprob of %s', (kind) => {
  it.each(settings)('is the derivative of the loss: %s', (_, extra) => {
    const options = { ...plain(kind), epsilonLow: 0.2, epsilonHigh: 0.2, ...extra };
    const { gradient, tallies } = run(batch, options);
    const h = 1e-6;
    const numeric = logprobs.map((_, i) => {
      const at = (step: number) =>
        run({ ...batch, logprobs: logprobs.map((v, j) => (j === i ? v + step : v)) }, options);
      return (at(h).loss - at(-h).loss) / (2 * h);
    });
    expect(maxDifference(gradient, numeric)).toBeLessThanOrEqual(1e-9);
    expect(numeric.filter((value) => Math.abs(value) > 1e-4).length).toBeGreaterThan(5);
    if (kind.startsWith('dppo')) expect(tallies.blocked).toBeGreaterThan(0);
    // With `delta` the bound is counted instead of the ratio; gspo's row means stay within the clip.
    else if (kind !== 'gspo' && !extra.delta) {
      expect(tallies.clippedLow).toBeGreaterThan(0);
      expect(tallies.clippedHigh).toBeGreaterThan(0);
    }
  });
});

describe('cispo', () => {
  const options = { ...plain('cispo'), cispoMaxRatio: 1.2 };

  it('carries -min(ratio, cap) * A, detached, on the log-prob, with no lower clamp', () => {
    const { gradient, loss, tallies } = run(batch, options);
    const { tokens } = lossWindow([batch], options);
    let value = 0;
    const rows = [0, 1, 2, 3, 4].flatMap((r) =>
      new Array<number>(batch.rowStarts[r + 1]! - batch.rowStarts[r]!).fill(batch.advantages[r]!),
    );
    const expected = logprobs.map((logprob, i) => {
      const carried = batch.mask[i]! * Math.min(Math.exp(logprob - batch.old![i]!), 1.2) * rows[i]!;
      value -= (carried * logprob) / tokens;
      return -carried / tokens;
    });
    expect(maxDifference(gradient, expected)).toBeLessThanOrEqual(1e-15);
    expect(loss).toBeCloseTo(value, 14);
    expect(tallies.capped).toBeGreaterThan(0);
    expect(lossMetrics(tallies, 'cispo', 0)['cispo_clip_ratio']).toBe(tallies.capped / tokens);
  });

  it('sends the bias-corrected KL through the ratio all the same', () => {
    const withKl = { ...options, beta: 0.4, klBiasCorrection: true };
    const term = (logprob: number) =>
      tokenTerm(withKl, { logprob, anchor: -1, reference: -1.4, advantage: 0, logWeight: logprob + 1 });
    const h = 1e-6;
    const { dLogprob, dLogWeight } = term(-0.8);
    expect(dLogprob + dLogWeight).toBeCloseTo((term(-0.8 + h).loss - term(-0.8 - h).loss) / (2 * h), 8);
  });
});

describe('the ratio', () => {
  it.each(lossKinds)(
    'of %s is exactly 1 on-policy, nothing is clipped, and the gradient is -A times the scale',
    (kind) => {
      const onPolicy = { ...batch, old: null, sampled: logprobs };
      const { gradient, tallies } = run(onPolicy, plain(kind));
      expect([tallies.ratioMin, tallies.ratioMax]).toEqual([1, 1]);
      expect(tallies.clippedLow + tallies.clippedHigh + tallies.capped + tallies.blocked).toBe(0);
      const copied = run({ ...onPolicy, old: [...logprobs] }, plain(kind));
      expect([...gradient]).toEqual([...copied.gradient]);
      const signs = [...gradient.slice(0, 9)].filter((_, i) => batch.mask[i]);
      expect(signs.every((g) => g < 0)).toBe(true);
    },
  );

  it('at the edge of the clip counts as inside', () => {
    const at = (logWeight: number, advantage: number) =>
      tokenTerm({ ...lossDefaults, epsilonHigh: 0.25 }, { logprob: 0, anchor: 0, reference: 0, advantage, logWeight });
    const edge = Math.log(1.25);
    expect(at(edge - 1e-9, 1).clippedHigh).toBe(false);
    expect(at(edge + 1e-9, 1)).toMatchObject({ clippedHigh: true, dLogWeight: -0 });
    expect(at(edge + 1e-9, -1)).toMatchObject({ clippedHigh: false });
    expect(at(edge + 1e-9, -1).dLogWeight).toBeCloseTo(1.25, 6);
  });
});

describe('the trust region of dppo', () => {
  const term = (kind: 'dppo_tv' | 'dppo_kl', mu: number, pi: number, advantage: number, dppoDelta: number) => {
    const [anchor, logprob] = [Math.log(mu), Math.log(pi)];
    const scalars = { ...lossDefaults, kind, dppoDelta };
    return tokenTerm(scalars, { logprob, anchor, reference: 0, advantage, logWeight: logprob - anchor });
  };

  it('keeps a tenfold rise of a rare token, which a ratio clip would stop', () => {
    expect(term('dppo_tv', 1e-4, 1e-3, 1, 0.1)).toMatchObject({ blocked: false });
    expect(term('dppo_tv', 1e-4, 1e-3, 1, 0.1).dLogWeight).toBeCloseTo(-10, 12);
  });

  it('masks a fall from .99 to .80 with negative advantage, which a ratio clip would keep', () => {
    expect(term('dppo_tv', 0.99, 0.8, -1, 0.1)).toMatchObject({ blocked: true, loss: 0, dLogWeight: 0 });
  });

  it('never masks a token that moves back toward the sampler', () => {
    for (const kind of ['dppo_tv', 'dppo_kl'] as const) {
      expect(term(kind, 0.99, 0.5, 1, 0.01).blocked).toBe(false);
      expect(term(kind, 0.5, 0.99, -1, 0.01).blocked).toBe(false);
      expect(term(kind, 0.5, 0.99, 1, 0.01).blocked).toBe(true);
      expect(term(kind, 0.99, 0.5, 0, 0.01).blocked).toBe(false);
    }
  });

  it('has a binary KL that is finite, and masks, where a probability rounds to 1 or 0', () => {
    const certain = Math.log1p(-1e-12);
    for (const [logprob, anchor] of [
      [certain, 0],
      [0, certain],
      [-0.5, 0],
      [-800, -0.1],
      [-0.1, -800],
      [1e-6, -1],
      [-1, 1e-6],
    ] as const) {
      const divergence = binaryDivergence('dppo_kl', logprob, anchor);
      expect(Number.isFinite(divergence), `${logprob} against ${anchor}`).toBe(true);
    }
    expect(binaryDivergence('dppo_kl', -0.5, 0)).toBeGreaterThan(0.05);
    expect(term('dppo_kl', 1, 0.6, -1, 0.05).blocked).toBe(true);
    expect(binaryDivergence('dppo_kl', -1.2, -1.2)).toBe(0);
  });

  it('is anchored on the sampler, not on old log-probs', () => {
    const options = { ...plain('dppo_tv'), dppoDelta: 0.05 };
    const moved = { ...batch, old: logprobs.map((value) => value - 2) };
    expect(run(moved, options)).toEqual(run(batch, options));
    expect(() => run({ ...batch, sampled: null }, options)).toThrowErrorMatchingInlineSnapshot(
      `[AuditError: computing the loss: no sampler log-probs for dppo_tv; dppo is anchored on them. Nothing was trained on; re-make the batch from its episodes.]`,
    );
  });
});

describe('the loss metrics', () => {
  it('count clips by sequence for low_min and high_max and by token for the means', () => {
    const two: LossBatch = {
      ...batch,
      rowStarts: [0, 2, 6],
      mask: [1, 1, 1, 1, 1, 0],
      logprobs: [0, 0, 0, 0, 0, 0].map(() => -1),
      old: [-2, -1, -1, -1, -2, -2],
      reference: null,
      advantages: [1, 1],
      entropy: [1, 2, 3, 4, 5, 600],
    };
    const metrics = lossMetrics(run(two, plain('grpo')).tallies, 'grpo', 0);
    expect(metrics).toMatchObject({
      entropy: 3,
      'clip_ratio/low_mean': 0,
      'clip_ratio/low_min': 0,
      'clip_ratio/high_mean': 2 / 5,
      'clip_ratio/high_max': 1 / 2,
      'clip_ratio/region_mean': 2 / 5,
      'policy_ratio/max': Math.E,
    });
    expect(metrics).not.toHaveProperty('kl');
  });

  it('of merged groups are those of one batch', () => {
    const options = { ...plain('dapo'), beta: 0.1 };
    const window = lossWindow([batch], options);
    const cut = (from: number, to: number, rowStarts: number[], rows: [number, number]): LossBatch => {
      const part = (values: ArrayLike<number> | null) => values && Array.from(values).slice(from, to);
      return {
        ...batch,
        rowStarts,
        mask: part(batch.mask)!,
        logprobs: part(batch.logprobs)!,
        old: part(batch.old),
        reference: part(batch.reference),
        advantages: Array.from(batch.advantages).slice(...rows),
      };
    };
    const left = policyLoss(cut(0, 15, [0, 9, 15], [0, 2]), options, window).tallies;
    const right = policyLoss(cut(15, 30, [0, 0, 9, 15], [2, 5]), options, window).tallies;
    const merged = lossMetrics(mergeTallies(left, right), 'dapo', 0.1);
    const whole = lossMetrics(run(batch, options).tallies, 'dapo', 0.1);
    expect(Object.keys(merged)).toEqual(Object.keys(whole));
    for (const [name, value] of Object.entries(whole)) expect(merged[name]).toBeCloseTo(value, 13);
  });

  it('count a gspo sequence once', () => {
    const { tallies } = run(batch, plain('gspo'));
    expect(tallies.units).toBe(4);
    expect(tallies.tokens).toBe(batch.mask.length - 4);
  });
});

describe('a batch that contradicts itself is refused', () => {
  const options = { ...plain('grpo'), beta: 0.1 };
  it.each([
    ['a mask that is shorter than the tokens', { mask: [1] }],
    ['log-probs of another length', { logprobs: [-1] }],
    ['too few advantages', { advantages: [1] }],
    ['a KL without reference', { reference: null }],
    ['a log-prob that is NaN', { logprobs: logprobs.map((v, i) => (i === 4 ? Number.NaN : v)) }],
    ['a sampled token without old log-prob', { old: logprobs.map((v, i) => (i === 4 ? Number.NEGATIVE_INFINITY : v)) }],
    ['a mask of 2', { mask: logprobs.map(() => 2) }],
  ])('%s', (_, change) => {
    expect(() => run({ ...batch, ...change }, options)).toThrow(/computing the loss: .*; .*\. Nothing was trained on/s);
  });

  it('truncation flags that are missing', () => {
    expect(() => run(batch, { ...options, maskTruncated: true })).toThrowErrorMatchingInlineSnapshot(
      `[AuditError: computing the loss: no truncation flags for 5 rows; wanted one a row. Nothing was trained on; re-make the batch from its episodes.]`,
    );
  });

  it('a window smaller than its batch', () => {
    expect(() => policyLoss(batch, options, { rows: 1, tokens: 5, microBatches: 1 })).toThrow(/the window holds/);
  });
});
