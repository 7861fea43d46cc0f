// Forms of one kernel (software adapters, GPUs, plain) give the same bits, alone and through a whole training step.
import { describe, expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { startTiming } from '../../src/gpu/timing.ts';
import { kernelVariant } from '../../src/gpu/variant.ts';
import { createTrainer } from '../../src/grpo/step.ts';
import { adamwDefaults } from '../../src/kernels/adamw-reference.ts';
import { compareForms, kernelForms } from '../../src/kernels/forms.ts';
import { lossDefaults } from '../../src/kernels/loss-terms.ts';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWeights } from '../../src/model/weights.ts';
import type { TrainSequence } from '../../src/rollout/pack.ts';
import { createSampler } from '../../src/rollout/sampler.ts';
import { goldenPath } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

/** The same device under an identity that another form of the kernels is chosen for. */
function as(variant: 'plain' | 'lanes' | 'tiles'): Gpu {
  const { identity } = gpu();
  const changed = {
    plain: { ...identity, software: true, features: identity.features.filter((name) => name !== 'subgroups') },
    lanes: identity,
    tiles: { ...identity, software: false },
  }[variant];
  expect(kernelVariant(changed)).toBe(variant);
  return { ...gpu(), identity: changed };
}

/** Bits of everything that a step of sampling, scoring and training gives. */
async function wholeStep(device: Gpu) {
  const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
  const model = await loadWeights(device, files, { positions: 64 });
  const initial = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
  const layout = adapterLayout(files.architecture, initial.config);
  const trainer = createTrainer(
    device,
    model,
    layout,
    initial,
    { rows: 200, sequences: 4, length: 64 },
    {
      loss: { ...lossDefaults, maskTruncated: false, maxCompletionLength: 50 },
      temperature: 1,
      adamw: adamwDefaults,
      maxGradNorm: 1,
      vocabulary: 300,
    },
  );
  const shape = { slots: 3, cacheLength: 64, rows: 200 };
  const settings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
  const sampler = createSampler(device, model, shape, settings, 300, layout);
  sampler.use(trainer.adapter);
  const key = (member: number, position: number) => ({ seed: 7, step: 1, group: 0, member, position });
  const prompt = (slot: number) => Array.from({ length: 21 + slot * 3 }, (_, t) => (t * 31 + slot * 7) % 300);
  const drawn = [
    await sampler.step([0, 1, 2].map((slot) => ({ slot, start: 0, tokens: prompt(slot), key: key(slot, 30) }))),
    await sampler.step([0, 1, 2].map((slot) => ({ slot, start: 21 + slot * 3, tokens: [slot], key: key(slot, 31) }))),
  ];
  const group = [0, 1, 2].map((member): TrainSequence => {
    const ids = Array.from({ length: 40 - member * 9 }, (_, t) => (t * 17 + member) % 300);
    const mask = ids.map((_, t): 0 | 1 => (t < 10 ? 0 : 1));
    return { ids, mask, sampled: ids.map(() => 0), advantage: member - 1, truncated: false };
  });
  const scored = await trainer.score(group);
  await trainer.step({ groups: [group], update: 1, learningRate: 0.01, old: 'current' });
  const state = await trainer.state();
  sampler.destroy();
  trainer.destroy();
  model.destroy();
  return { drawn, scored, state };
}

describe('forms of a kernel', () => {
  test('every form that the device runs gives the bits of the plain one', async () => {
    const results = await compareForms(gpu());
    expect(results.filter(({ passed }) => !passed)).toEqual([]);
    expect(results.length).toBeGreaterThanOrEqual(kernelForms.length - 4);
  });

  test('sampling, scoring and a training step give the same bits in every form, and while GPU time is measured', async () => {
    const plain = await wholeStep(as('plain'));
    expect(await wholeStep(as('tiles'))).toEqual(plain);
    if (kernelVariant(gpu().identity) === 'lanes') expect(await wholeStep(as('lanes'))).toEqual(plain);
    const timing = startTiming(gpu());
    try {
      expect(await wholeStep(gpu())).toEqual(plain);
      const spans = await timing.take();
      expect(spans.length).toBeGreaterThan(100);
      expect(spans.every(({ durationNs }) => durationNs >= 0)).toBe(true);
    } finally {
      timing.stop();
    }
  });
});
