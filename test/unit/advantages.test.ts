// Group-relative advantages: TRL's scales and aggregations, equal rewards, unscorable rows, bad input.
import { describe, expect, it } from 'vitest';
import { type AdvantageOptions, computeAdvantages, moments } from '../../src/grpo/advantages.ts';
import { maxDifference } from '../support/golden.ts';

const group: AdvantageOptions = { groupSize: 4, scale: 'group' };
const single = (rewards: (number | null)[], options: AdvantageOptions = group) =>
  computeAdvantages(
    rewards.map((reward) => [reward]),
    options,
  );

describe('advantages', () => {
  it('of rewards 1, 0, 0, 0 are 1.4997 and -0.4999 three times', () => {
    const { advantages, groups } = single([1, 0, 0, 0]);
    expect(maxDifference(advantages, [0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001])).toBeLessThan(
      1e-7,
    );
    expect(groups).toEqual([{ mean: 0.25, std: 0.5, signal: true }]);
  });

  it('are exactly 0 for equal rewards that no float holds exactly', () => {
    for (const value of [0.1, 1 / 3, 0.7, 1e-9]) {
      const { advantages, groups } = single([value, value, value, value]);
      expect([...advantages]).toEqual([0, 0, 0, 0]);
      expect(groups[0]).toEqual({ mean: value, std: 0, signal: false });
    }
  });

  it('divide by the std of all rows with scale batch, the mean staying the group’s', () => {
    const rewards = [1, 0, 0, 0, 5, 5, 5, 9];
    const std = moments(rewards).std!;
    const { advantages } = single(rewards, { groupSize: 4, scale: 'batch' });
    const expected = [0.75, -0.25, -0.25, -0.25, -1, -1, -1, 3].map((deviation) => deviation / (std + 1e-4));
    expect(maxDifference(advantages, expected)).toBeLessThan(1e-7);
  });

  it('are plain deviations with scale none', () => {
    expect([...single([1, 0, 0, 0], { groupSize: 4, scale: 'none' }).advantages]).toEqual([0.75, -0.25, -0.25, -0.25]);
  });

  it('weigh several reward functions and skip those that do not apply to a row', () => {
    const rows = [
      [1, 2],
      [0, null],
      [null, 1],
      [null, null],
    ];
    const { rewards, advantages } = computeAdvantages(rows, { ...group, scale: 'none', weights: [1, 0.5] });
    expect(rewards).toEqual([2, 0, 0.5, null]);
    expect(maxDifference(advantages, [2 - 2.5 / 3, -2.5 / 3, 0.5 - 2.5 / 3, 0])).toBeLessThan(1e-7);
  });

  it('normalise each function before the sum and then the batch with normalize_then_sum', () => {
    const rows = [
      [1, 10],
      [0, 30],
      [2, 20],
      [1, 20],
    ];
    const z = (x: number, mean: number, std: number) => (x - mean) / (std + 1e-4);
    const s0 = moments([1, 0, 2, 1]).std!;
    const s1 = moments([10, 30, 20, 20]).std!;
    const sums = rows.map(([a, b]) => z(a!, 1, s0) + 2 * z(b!, 20, s1));
    const all = moments(sums);
    const { advantages } = computeAdvantages(rows, { ...group, aggregation: 'normalize_then_sum', weights: [1, 2] });
    expect(
      maxDifference(
        advantages,
        sums.map((sum) => z(sum, all.mean!, all.std!)),
      ),
    ).toBeLessThan(1e-7);
  });

  it('are f32 numbers', () => {
    const { advantages } = single([0.3, 0.1, 0.9, 0.2]);
    expect(advantages).toBeInstanceOf(Float32Array);
  });

  it('refuse rows that do not fill groups, missing columns and rewards that are not finite', () => {
    expect(() => single([1, 2, 3])).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: computing advantages: 3 rows in groups of 4; the rows must fill whole groups. Replace or drop an incomplete group as a whole.]`,
    );
    expect(() => single([1, 2, 3, Number.NaN])).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: computing advantages: row 3 has reward NaN; rewards are finite or null. Give null for a row that cannot be scored.]`,
    );
    expect(() => computeAdvantages([[1], [1], [1], []], group)).toThrow(/row 3 has 0 rewards/);
    expect(() => single([])).toThrow(/0 rows/);
  });
});
