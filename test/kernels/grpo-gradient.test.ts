// The loss gradient kernel: qualification, the goldens of every loss kind, and masked tokens.
import { describe, expect, test } from 'vitest';
import { anchorLogprobs, lossWindow, rowScales } from '../../src/grpo/losses.ts';
import { gradientKind, grpoGradient, grpoGradientGrid, grpoGradientParams } from '../../src/kernels/grpo-gradient.ts';
import { type LossKind, lossDefaults, lossKinds } from '../../src/kernels/loss-terms.ts';
import { goldenData, maxDifference } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification, floats, runKernel } from './run-kernel.ts';

const gpu = useGpu();

describeQualification(gpu, grpoGradient);

const f32 = (values: ArrayLike<number>) => Float32Array.from(values);

function goldenInputs(kind: LossKind) {
  const golden = goldenLoss();
  const { batch } = golden;
  const options = golden.options(kind);
  const scales = rowScales(batch, options, lossWindow([batch], options));
  const weights = f32(batch.mask).map((bit, t) => bit * scales[Math.floor(t / 28)]!);
  return {
    golden,
    options,
    inputs: {
      starts: Uint32Array.from(batch.rowStarts),
      advantages: f32(batch.advantages),
      weights,
      logprobs: f32(batch.logprobs),
      anchors: f32(anchorLogprobs(batch, kind)),
      references: f32(batch.reference!),
      gradient: weights.length,
    },
  };
}

function run(kind: LossKind, inputs: ReturnType<typeof goldenInputs>['inputs'], loss = goldenInputs(kind).options) {
  const sequences = inputs.advantages.length;
  const constants = { KIND: gradientKind[kind] };
  return runKernel(
    gpu(),
    grpoGradient,
    grpoGradientParams(sequences, loss),
    grpoGradientGrid(sequences),
    inputs,
    constants,
  );
}

describe.each(lossKinds)('the golden batch under %s', (kind) => {
  test('has the derivative that torch found, within 1e-5 of the largest', async () => {
    const { golden, inputs } = goldenInputs(kind);
    const expected = goldenData(golden.file, `${kind}.dloss_dlogp`);
    const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const found = floats((await run(kind, inputs))['gradient']!);
    expect(maxDifference(found, expected) <= 1e-5 * largest).toBe(true);
  });

  test('gives exact zeros where masked, whatever those tokens hold', async () => {
    const { inputs } = goldenInputs(kind);
    const clean = (await run(kind, inputs))['gradient']!;
    const masked = Array.from(inputs.weights.keys()).filter((t) => inputs.weights[t] === 0);
    for (const t of masked) inputs.logprobs[t] = inputs.anchors[t] = inputs.references[t] = Number.NaN;
    const spoilt = (await run(kind, inputs))['gradient']!;
    expect([...spoilt]).toEqual([...clean]);
    for (const t of masked) expect(clean[t]).toBe(0);
  });
});

test('at ratio 1 every kind gives minus advantage times weight', async () => {
  for (const kind of lossKinds) {
    const { inputs } = goldenInputs(kind);
    inputs.anchors.set(inputs.logprobs);
    const loss = { ...lossDefaults, kind };
    const found = floats((await run(kind, inputs, { ...goldenInputs(kind).options, ...loss }))['gradient']!);
    const expected = inputs.weights.map((weight, t) => -inputs.advantages[Math.floor(t / 28)]! * weight);
    // exp(0) is 1 within 3 ULP; gspo also divides a sum by its count.
    const tolerance = 1e-6;
    found.forEach((value, t) => {
      expect(Math.abs(value - expected[t]!) <= tolerance * Math.abs(expected[t]!)).toBe(true);
    });
  }
});

test('a policy that is sure of the token does not make the divergence a NaN', async () => {
  const almost = -(2 ** -30);
  const inputs = {
    starts: Uint32Array.of(0, 4),
    advantages: Float32Array.of(-1),
    weights: new Float32Array(4).fill(1),
    logprobs: Float32Array.of(0, almost, -3, -1),
    anchors: Float32Array.of(almost, 0, 0, almost),
    references: new Float32Array(4),
    gradient: 4,
  };
  const loss = { ...goldenInputs('dppo_kl').options, ...lossDefaults, kind: 'dppo_kl' as const, dppoDelta: 0.05 };
  const found = floats((await run('dppo_kl', inputs, loss))['gradient']!);
  // Nothing happened at the first two; the last two moved away from the sampler against the advantage: masked.
  expect([found[2], found[3]]).toEqual([0, 0]);
  for (const value of found.subarray(0, 2)) expect(Math.abs(value - 1) <= 1e-6).toBe(true);
});
