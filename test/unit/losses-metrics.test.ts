// Step metrics under TRL's names, worked by hand.
import { describe, expect, it } from 'vitest';
import { type MetricRow, stepMetrics } from '../../src/grpo/metrics.ts';

const row = (values: Partial<MetricRow>): MetricRow => ({
  promptTokens: 10,
  sampledTokens: 5,
  terminated: true,
  capped: false,
  toolCalls: 0,
  toolFailures: 0,
  rewards: {},
  reward: 0,
  ...values,
});
const options = { groupSize: 2, scale: 'group', tokensBefore: 1000, tools: true } as const;

describe('step metrics', () => {
  const rows = [
    row({ reward: 1, rewards: { shaped: 0.5, strict: 1 }, sampledTokens: 4, toolCalls: 2, toolFailures: 1 }),
    row({ reward: 0, rewards: { shaped: 0, strict: 0 }, sampledTokens: 8, toolCalls: 1 }),
    row({ reward: 0.5, rewards: { shaped: 0.5, strict: null }, sampledTokens: 12, terminated: false, capped: true }),
    row({ reward: 0.5, rewards: { shaped: 0.5 }, sampledTokens: 6, toolCalls: 1, toolFailures: 1 }),
  ];

  it('have TRL’s names and values', () => {
    const metrics = stepMetrics(rows, options);
    expect(metrics).toEqual({
      num_tokens: 1070,
      'completions/mean_length': 7.5,
      'completions/min_length': 4,
      'completions/max_length': 12,
      'completions/clipped_ratio': 0.25,
      'completions/capped_ratio': 0.25,
      'completions/mean_terminated_length': 6,
      'completions/min_terminated_length': 4,
      'completions/max_terminated_length': 8,
      'tools/call_frequency': 1,
      'tools/failure_frequency': 0.5,
      'rewards/shaped/mean': 0.375,
      'rewards/shaped/std': 0.25,
      'rewards/strict/mean': 0.5,
      'rewards/strict/std': Math.SQRT1_2,
      reward: 0.5,
      reward_std: Math.sqrt(0.5 / 3),
      frac_reward_zero_std: 0.5,
    });
  });

  it('take the std of the whole step for zero-std rows with scale batch', () => {
    expect(stepMetrics(rows, { ...options, scale: 'batch' })['frac_reward_zero_std']).toBe(0);
    expect(stepMetrics(rows.slice(2), { ...options, scale: 'batch' })['frac_reward_zero_std']).toBe(1);
  });

  it('are 0 for terminated lengths where none terminated and null for rewards where none was scored', () => {
    const metrics = stepMetrics(
      [row({ terminated: false, reward: null }), row({ terminated: false, reward: null })],
      options,
    );
    expect(metrics['completions/mean_terminated_length']).toBe(0);
    expect(metrics['completions/clipped_ratio']).toBe(1);
    expect(metrics['tools/failure_frequency']).toBe(0);
    expect([metrics['reward'], metrics['reward_std'], metrics['frac_reward_zero_std']]).toEqual([null, null, 1]);
  });

  it('leave the tools out where there are none', () => {
    expect(
      Object.keys(stepMetrics(rows, { ...options, tools: false })).filter((name) => name.startsWith('tools')),
    ).toEqual([]);
  });
});
