// Loss values and dLoss/dlogprob of every kind against PyTorch's autograd on the golden batch.
import { describe, expect, it } from 'vitest';
import { computeAdvantages } from '../../src/grpo/advantages.ts';
import { lossWindow, policyLoss } from '../../src/grpo/losses.ts';
import { lossKinds } from '../../src/kernels/loss-terms.ts';
import { goldenData, maxDifference } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';

const golden = goldenLoss();

describe.each(lossKinds)('the %s loss', (kind) => {
  const options = golden.options(kind);
  const result = policyLoss(golden.batch, options, lossWindow([golden.batch], options));

  it('has the golden value', () => {
    expect(Math.abs(result.loss - goldenData(golden.file, `${kind}.loss`)[0]!)).toBeLessThanOrEqual(1e-13);
  });

  it('has the golden derivative at every token', () => {
    const expected = goldenData(golden.file, `${kind}.dloss_dlogp`);
    expect(maxDifference(result.gradient, expected)).toBeLessThanOrEqual(1e-13);
    expect(expected.some((value) => Math.abs(value) > 1e-4)).toBe(true);
  });

  it('is clipped where the batch was made to be clipped', () => {
    const { clippedLow, clippedHigh, capped, blocked } = result.tallies;
    // Only the ratio clip is active in the golden batch; caps and trust regions are tested in test/unit/losses.test.ts.
    const clips = ['grpo', 'bnpo', 'dapo', 'dr_grpo'].includes(kind) ? [5, 1] : [0, 0];
    expect([clippedLow, clippedHigh, capped, blocked]).toEqual([...clips, 0, 0]);
  });
});

describe('the golden advantages', () => {
  it('are the group-normalised rewards', () => {
    const rewards = [...goldenData(golden.file, 'rewards')].map((reward) => [reward]);
    const { advantages } = computeAdvantages(rewards, { groupSize: 4, scale: 'group' });
    expect(maxDifference(advantages, goldenData(golden.file, 'advantages'))).toBeLessThanOrEqual(1e-7);
  });
});
