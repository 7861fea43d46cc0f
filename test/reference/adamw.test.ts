// The f64 AdamW against torch.optim.AdamW: five clipped updates with weight decay and a linear schedule.
import { describe, expect, it } from 'vitest';
import { f32BitsHex } from '../../src/checkpoint-state.ts';
import { learningRate } from '../../src/grpo/schedule.ts';
import { adamwReference, adamwScalars, clipCoefficient } from '../../src/kernels/adamw-reference.ts';
import { gradientNorm } from '../../src/model/reference.ts';
import { goldenData, maxDifference, readGolden, relativeL2 } from '../support/golden.ts';

describe('the f64 AdamW', () => {
  const file = readGolden('adamw.safetensors');
  const [beta1, beta2] = file.metadata['betas'] as [number, number];
  const eps = file.metadata['eps'] as number;
  const weightDecay = file.metadata['weight_decay'] as number;
  const schedule = { kind: 'linear', base: file.metadata['lr'] as number, totalSteps: 6 } as const;
  const w = Float64Array.from(goldenData(file, 'w.0'));
  const [m, v] = [new Float64Array(w.length), new Float64Array(w.length)];

  it.each([1, 2, 3, 4, 5])('makes update %i as torch does', (k) => {
    const gradient = goldenData(file, `grad.${k}`);
    const rate = learningRate(k, schedule);
    expect(rate).toBe(goldenData(file, `lr.${k}`)[0]!);
    const norm = gradientNorm(new Map([['w', gradient]]));
    expect(relativeL2([norm], goldenData(file, `norm.${k}`))).toBeLessThanOrEqual(2e-7);
    const scalars = adamwScalars(k, rate, { beta1, beta2, eps, weightDecay });
    adamwReference(w, m, v, gradient, clipCoefficient(norm, file.metadata['max_grad_norm'] as number), scalars);
    expect(maxDifference(w, goldenData(file, `w.${k}`))).toBeLessThanOrEqual(1e-6);
    expect(relativeL2(m, goldenData(file, `m.${k}`))).toBeLessThanOrEqual(5e-7);
    expect(relativeL2(v, goldenData(file, `v.${k}`))).toBeLessThanOrEqual(5e-7);
  });

  it('takes scalars that are f32 numbers, formed in f64 before rounding', () => {
    const scalars = adamwScalars(1, 5e-6);
    for (const value of Object.values(scalars)) expect(value).toBe(Math.fround(value));
    // 1 / (1 - 0.999): from f32 operands this would be 999.9871, wrong in the fifth digit.
    expect(scalars.inverseSqrtBias2 ** 2).toBeCloseTo(1000, 3);
    expect(scalars.oneMinusBeta2).toBe(Math.fround(0.001));
    expect(f32BitsHex(scalars.inverseBias1)).toBe('41200000');
  });

  it('leaves a gradient alone whose norm is below the limit, and clips one above by torch’s coefficient', () => {
    expect(clipCoefficient(0.5, 1)).toBe(1);
    expect(clipCoefficient(4, 1)).toBe(1 / (4 + 1e-6));
    expect(clipCoefficient(0, 1)).toBe(1);
    expect(clipCoefficient(1e9, 0)).toBe(1);
    expect(clipCoefficient(Number.NaN, 1)).toBeNaN();
  });

  it('refuses step 0', () => {
    expect(() => adamwScalars(0, 1e-3)).toThrowErrorMatchingInlineSnapshot(
      `[KernelError: preparing AdamW: found step 0, learning rate 0.001, betas 0.9 and 0.999, eps 1e-8, weight decay 0; wanted step >= 1, 0 <= beta < 1, eps > 0 and the others >= 0. Correct the plan.]`,
    );
  });
});
