// Public bug case G2: a member that could not be scored must not shift its group's baseline.
import { describe, expect, it } from 'vitest';
import { computeAdvantages } from '../../src/grpo/advantages.ts';
import { stepMetrics } from '../../src/grpo/metrics.ts';
import { seededNumbers } from '../support/golden-model.ts';

const rows = (rewards: (number | null)[]) => rewards.map((reward) => [reward]);

describe('G2: an excluded member', () => {
  it('leaves mean 2, std 1 and deviations -1, 1, 0 to rewards 1, 3, 2', () => {
    const { advantages, groups } = computeAdvantages(rows([1, 3, 2, null]), { groupSize: 4, scale: 'none' });
    expect([...advantages]).toEqual([-1, 1, 0, 0]);
    expect(groups).toEqual([{ mean: 2, std: 1, signal: true }]);
  });

  it('leaves them to the normalised advantages too', () => {
    const { advantages } = computeAdvantages(rows([1, 3, 2, null]), { groupSize: 4, scale: 'group' });
    expect([...advantages]).toEqual([-1 / 1.0001, 1 / 1.0001, 0, 0].map(Math.fround));
  });

  it('makes no signal where the others agree, nor where fewer than two are left', () => {
    for (const rewards of [
      [1, 1, null, 1],
      [null, 0.5, null, null],
      [null, null, null, null],
    ]) {
      const { advantages, groups } = computeAdvantages(rows(rewards), { groupSize: 4, scale: 'group' });
      expect([...advantages]).toEqual([0, 0, 0, 0]);
      expect(groups[0]!.signal).toBe(false);
    }
  });

  it('has no part in the batch std nor in any other group', () => {
    const batch = (rewards: (number | null)[]) =>
      computeAdvantages(rows(rewards), { groupSize: 3, scale: 'batch' }).advantages;
    const std = Math.sqrt([1, 2, 4, 4, 6].reduce((sum, x) => sum + (x - 3.4) ** 2, 0) / 4);
    const own = batch([1, 2, null, 4, 4, 6]);
    const expected = [-0.5, 0.5, 0, -2 / 3, -2 / 3, 4 / 3].map((deviation) => Math.fround(deviation / (std + 1e-4)));
    expect([...own]).toEqual(expected);
  });

  it('gives the others the advantages of the group without it, wherever it stands', () => {
    const next = seededNumbers(5);
    for (let trial = 0; trial < 50; trial++) {
      const rewards = Array.from({ length: 5 }, () => Math.round(4 * next()) / 4);
      const alone = computeAdvantages(rows(rewards), { groupSize: 5, scale: 'group' }).advantages;
      const at = trial % 6;
      const withNull: (number | null)[] = [...rewards];
      withNull.splice(at, 0, null);
      const mixed = [...computeAdvantages(rows(withNull), { groupSize: 6, scale: 'group' }).advantages];
      expect(mixed.splice(at, 1)).toEqual([0]);
      expect(mixed).toEqual([...alone]);
    }
  });

  it('has no part in the reward metrics', () => {
    const row = { promptTokens: 1, sampledTokens: 1, terminated: true, capped: false, toolCalls: 0, toolFailures: 0 };
    const metrics = stepMetrics(
      [1, 3, 2, null].map((reward) => ({ ...row, reward, rewards: { strict: reward } })),
      { groupSize: 4, scale: 'group', tokensBefore: 0, tools: false },
    );
    expect(metrics).toMatchObject({ reward: 2, reward_std: 1, 'rewards/strict/mean': 2, 'rewards/strict/std': 1 });
    expect(metrics['frac_reward_zero_std']).toBe(0);
  });
});
