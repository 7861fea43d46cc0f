// The matrix family's fused pass on a Llama shape: no norm of q and k, three query heads to a key head of 64, as in
// SmolLM2. Products are emulated where the adapter has no subgroup matrices.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { upload } from '../../src/gpu/buffers.ts';
import { testValues } from '../../src/kernels/case-data.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { adapterLayout, allocateAdapter, type GpuAdapter } from '../../src/model/adapter-gpu.ts';
import { resolveTargets } from '../../src/model/lora.ts';
import { runsFused, useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import { createSampler, type Drawn } from '../../src/rollout/sampler.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';
import { scoreRows } from '../support/score-rows.ts';

const gpu = useGpu();
const vocabulary = 317;
const settings = { temperature: 0.6, topK: 20, topP: 0.95, minP: 0 };
const shape = {
  model_type: 'llama',
  hidden_size: 576,
  intermediate_size: 192,
  num_attention_heads: 9,
  num_key_value_heads: 3,
  head_dim: 64,
};
let model: GpuModel;
let adapter: GpuAdapter;

beforeAll(async () => {
  const files = await openModelFiles(randomModel(3, shape));
  const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
  ({ model } = await useMatrixFamily(gpu(), await loadWeights(gpu(), files, { positions: 256 }), emulate));
  const config = { rank: 16, alpha: 32, useRslora: false, targets: resolveTargets('all-linear') };
  const layout = adapterLayout(model.architecture, config);
  adapter = { layout, views: allocateAdapter(gpu(), layout, 'adapter') };
  upload(gpu(), adapter.views.flat, testValues(layout.length, 5, 0.02));
});
afterAll(() => model.destroy());

test('a Llama of the SmolLM2 kind runs the fused pass, and a trainer finds the sampled log-probs', async () => {
  expect(model.architecture).toMatchObject({ modelType: 'llama', qkNorm: false, heads: 9, kvHeads: 3 });
  expect(runsFused(gpu(), model)).toBe(true);
  const prompts = [70, 3, 20].map((length, i) => Array.from({ length }, (_, t) => (t * 37 + i * 11) % vocabulary));
  const key = (member: number, position: number) => ({ seed: 9, step: 1, group: 0, member, position });
  const sampler = createSampler(
    gpu(),
    model,
    { slots: 3, cacheLength: 100, rows: 160 },
    settings,
    vocabulary,
    adapter.layout,
  );
  sampler.use(adapter);
  const drawn: Drawn[][] = prompts.map(() => []);
  const first = await sampler.step(
    prompts.map((tokens, slot) => ({ slot, start: 0, tokens, key: key(slot, tokens.length) })),
  );
  for (const [i, result] of first.entries()) drawn[i]!.push(result!);
  const decoding = sampler.decode!(
    prompts.map(({ length }, slot) => ({
      slot,
      position: length,
      token: drawn[slot]![0]!.id,
      key: key(slot, length + 1),
    })),
  );
  for (const row of await decoding.send(9)) for (const [i, result] of row.entries()) drawn[i]!.push(result!);
  sampler.destroy();
  const sequences = drawn.map((row, i) => [...prompts[i]!, ...row.map(({ id }) => id)]);
  for (const training of [true, false]) {
    const scored = await scoreRows(gpu(), model, adapter, sequences, training, vocabulary, settings.temperature);
    for (const [i, row] of drawn.entries()) {
      const own = scored[i]!.slice(prompts[i]!.length - 1, prompts[i]!.length - 1 + row.length);
      expect(own.map(({ logprob }) => logprob)).toEqual(row.map(({ logprob }) => logprob));
    }
  }
  expect(new Set(drawn.flat().map(({ id }) => id)).size).toBeGreaterThan(5);
});
