// Clip and trust-region states of a rollout's tokens, kind by kind, against the losses' own tallies.
import { describe, expect, it } from 'vitest';
import { policyLoss } from '../../../src/grpo/losses.ts';
import { boundsText, clipStates, lossSettings } from '../../../src/inspect/clip-states.ts';
import { type LossKind, lossDefaults, lossKinds } from '../../../src/kernels/loss-terms.ts';
import { resolveRunConfig } from '../../../src/run-config.ts';

const tokens = 40;
/** Two prompt tokens, then sampled ones whose later log-probs run from far below to far above the recorded ones. */
const ids = Array.from({ length: tokens + 2 }, (_, i) => i);
const mask = ids.map((i): 0 | 1 => (i < 2 ? 0 : 1));
const recorded = ids.map((i) => (i < 2 ? null : Math.fround(-0.5 - 0.02 * i)));
const current = ids.map((i) => (i < 2 ? null : Math.fround(recorded[i]! + (i - 21) / 30)));
const stopped = { span: [2, tokens + 2] as [number, number], stop: 'stop' as const, calls: [] };
const episode = { ids, mask, logprobs: recorded, turns: [stopped] };
const settings = (kind: LossKind, more: object = {}) => ({
  scalars: { ...lossDefaults, kind, ...more },
  maskTruncated: false,
});
const statesOf = (kind: LossKind, advantage: number, more: object = {}) =>
  clipStates(episode, current, advantage, settings(kind, more)).slice(2);

describe('the states of tokens', () => {
  it.each(lossKinds)('of %s leave the gradient of the loss exactly where they say so', (kind) => {
    for (const advantage of [-1.3, 0.7]) {
      const states = statesOf(kind, advantage);
      const batch = {
        rowStarts: [0, tokens],
        mask: new Uint8Array(tokens).fill(1),
        truncated: [false],
        logprobs: current.slice(2).map(Number),
        old: recorded.slice(2).map(Number),
        sampled: recorded.slice(2).map(Number),
        reference: null,
        advantages: [advantage],
        entropy: null,
      };
      const options = { ...lossDefaults, kind, maskTruncated: false, maxCompletionLength: tokens };
      const window = { rows: 1, tokens, microBatches: 1 };
      const { gradient } = policyLoss(batch, options, window);
      for (const [i, token] of states.entries()) {
        // cispo caps the weight and keeps the gradient; everywhere else a state that is not open has none.
        const has = kind === 'cispo' || token!.state === 'open';
        expect([kind, i, token!.state, gradient[i] !== 0]).toEqual([kind, i, token!.state, has]);
      }
    }
  });

  it('are clipped low under a negative advantage and high under a positive one, past the bounds alone', () => {
    for (const [advantage, wanted] of [
      [-1, 'low'],
      [1, 'high'],
    ] as const) {
      const states = statesOf('dapo', advantage);
      expect(new Set(states.map((token) => token!.state))).toEqual(new Set(['open', wanted]));
      for (const { state, ratio } of states.map((token) => token!)) {
        expect(state === wanted).toBe(wanted === 'low' ? ratio < 0.8 : ratio > 1.2);
      }
    }
  });

  it('share one ratio in gspo, have a cap in cispo and beyond delta, and a divergence in dppo', () => {
    expect(new Set(statesOf('gspo', 1).map((token) => token!.ratio)).size).toBe(1);
    const capped = statesOf('cispo', 1, { cispoMaxRatio: 1.5 });
    expect(capped.filter((token) => token!.state === 'capped').every((token) => token!.ratio > 1.5)).toBe(true);
    expect(capped.some((token) => token!.state === 'capped')).toBe(true);
    const bounded = statesOf('grpo', -1, { delta: 1.5 });
    expect(bounded.filter((token) => token!.state === 'capped').length).toBeGreaterThan(0);
    const blocked = statesOf('dppo_tv', 1, { dppoDelta: 0.1 });
    for (const token of blocked) {
      expect(token!.state === 'blocked').toBe(token!.ratio > 1 && token!.divergence! > 0.1);
    }
    expect(statesOf('dapo', 1)[0]!.divergence).toBeNull();
  });

  it('are open at ratio 1 without a later policy, flat without an advantage, out where the rollout is left out', () => {
    const first = clipStates(episode, null, 1, settings('dapo'));
    expect(first.slice(0, 2)).toEqual([null, null]);
    expect(first.slice(2).every((token) => token!.state === 'open' && token!.ratio === 1)).toBe(true);
    expect(statesOf('dapo', 0).every((token) => token!.state === 'flat')).toBe(true);
    const cut = { ...episode, turns: [{ ...stopped, stop: 'length' as const }] };
    const left = clipStates(cut, current, 1, { ...settings('dapo'), maskTruncated: true });
    expect(left.slice(2).every((token) => token!.state === 'out')).toBe(true);
  });

  it('come from the configuration of the run, and its bounds are said in words', async () => {
    const text = JSON.stringify({ model: 'm', output: 'o', grpo: { loss: 'dppo_kl', epsilonLow: 0.1 } });
    const { config } = await resolveRunConfig(text, 'a test');
    const found = lossSettings(config);
    expect(found.scalars).toMatchObject({ kind: 'dppo_kl', dppoDelta: 0.05, epsilonLow: 0.1 });
    expect(boundsText(found)).toContain('dppo_kl: divergence at most 0.05');
    expect(boundsText(settings('gspo', { delta: 3 }))).toBe(
      'gspo: ratio in [0.8, 1.2], at most 3 unclipped, of the whole row',
    );
  });
});
