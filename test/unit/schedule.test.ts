// Learning rates on the host: linear decay as transformers has it, constant, and the recorded f32 bits.
import { describe, expect, it } from 'vitest';
import { f32BitsHex } from '../../src/checkpoint-state.ts';
import { learningRate } from '../../src/grpo/schedule.ts';

describe('the learning rate', () => {
  it('falls linearly from the full rate at step 1 to base / N at step N', () => {
    const schedule = { kind: 'linear', base: 1e-3, totalSteps: 3 } as const;
    expect([1, 2, 3].map((step) => learningRate(step, schedule))).toEqual([1e-3, 1e-3 * (2 / 3), 1e-3 * (1 / 3)]);
  });
  it('is 5e-6 * (256 - (k - 1)) / 256 in a run of 256 steps', () => {
    const schedule = { kind: 'linear', base: 5e-6, totalSteps: 256 } as const;
    for (const k of [1, 2, 65, 128, 256]) expect(learningRate(k, schedule)).toBeCloseTo((5e-6 * (257 - k)) / 256, 20);
  });
  it('stays when constant', () => {
    expect(learningRate(7, { kind: 'constant', base: 2e-4, totalSteps: 9 })).toBe(2e-4);
  });
  it('refuses a step outside the run', () => {
    const schedule = { kind: 'linear', base: 1, totalSteps: 4 } as const;
    expect(() => learningRate(5, schedule)).toThrowErrorMatchingInlineSnapshot(
      `[PlanError: computing the learning rate: step 5 of 4; steps are 1..4. Resume with the plan that the run was started with.]`,
    );
    expect(() => learningRate(0, schedule)).toThrow(/step 0 of 4/);
    expect(() => learningRate(1.5, schedule)).toThrow(/step 1.5 of 4/);
  });
  it('is recorded as the bits of the nearest f32', () => {
    expect([1, -2, 0.1, 5e-6, -0].map(f32BitsHex)).toEqual([
      '3f800000',
      'c0000000',
      '3dcccccd',
      '36a7c5ac',
      '80000000',
    ]);
  });
});
