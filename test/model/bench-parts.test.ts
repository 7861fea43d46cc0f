// The parts of a decode step: every dispatch of the decoder's own step is in one of them, on any adapter.
import { expect, test } from 'vitest';
import { measureParts } from '../../bench/parts.ts';
import { settingsFor } from '../../bench/settings.ts';
import { makeTrainer } from '../../bench/steps.ts';
import { defaultLora } from '../../src/doctor.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';

const gpu = useGpu();

async function partsOf(model: GpuModel) {
  const settings = {
    ...settingsFor(1e5, true),
    batches: [2],
    contexts: [70],
    group: 2,
    promptTokens: 20,
    newTokens: 8,
  };
  const trainer = makeTrainer(gpu(), model, defaultLora(4), settings);
  const limits = { copyGBs: 1, matmulGflops: 1, matmulShape: '' };
  const parts = await measureParts({ gpu: gpu(), family: 'matrix', model, trainer, settings, limits });
  trainer.destroy();
  return parts;
}

test('a step of two layers has its dispatches of each layer, the draw and the head; a portable model has no parts', async () => {
  const files = await openModelFiles(randomModel(4));
  const portable = await loadWeights(gpu(), files, { positions: 128 });
  expect(await partsOf(portable)).toBe(null);
  const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
  const { model } = await useMatrixFamily(gpu(), portable, emulate);
  const found = (await partsOf(model))!;
  expect(found.stepMs).toBeGreaterThan(0);
  const count = Object.fromEntries(found.parts.map(({ kernel, dispatches }) => [kernel, dispatches]));
  expect(count).toMatchObject({
    'matrix-rows': 8,
    'attention-partial': 2,
    embed: 1,
    '(the draw)': expect.any(Number),
  });
  expect(count['sample']).toBe(undefined);
  expect(found.parts.every(({ usAlone }) => usAlone > 0)).toBe(true);
  model.destroy();
});
