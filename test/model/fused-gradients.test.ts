// Training on the matrix family's fused pass, with products emulated where the adapter has no subgroup matrices: its
// gradients against the portable family's, and the same bits from run to run and whoever shares a micro-batch.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { memoryInUse } from '../../src/gpu/buffers.ts';
import { createTrainer, type Trainer } from '../../src/grpo/step.ts';
import { adamwDefaults } from '../../src/kernels/adamw-reference.ts';
import { testValues } from '../../src/kernels/case-data.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { type Adapter, adapterTensorNames, type LoraConfig, resolveTargets } from '../../src/model/lora.ts';
import { useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import type { TrainSequence } from '../../src/rollout/pack.ts';
import { relativeL2 } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';

const gpu = useGpu();
let fused: GpuModel;
let portable: GpuModel;

beforeAll(async () => {
  const files = await openModelFiles(randomModel(2));
  portable = await loadWeights(gpu(), files, { positions: 128 });
  const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
  ({ model: fused } = await useMatrixFamily(gpu(), await loadWeights(gpu(), files, { positions: 128 }), emulate));
});

afterAll(() => {
  fused.destroy();
  portable.destroy();
});

const lengths = [90, 40, 66, 12];
const all: TrainSequence[] = lengths.map((length, s) => ({
  ids: Array.from({ length }, (_, t) => (t * 29 + s * 17 + ((t * t) % 7)) % 300),
  mask: Array.from({ length }, (_, t) => (t > 8 && t % 5 !== 2 ? 1 : 0)),
  sampled: Array.from({ length }, (_, t) => (t > 8 && t % 5 !== 2 ? -3 - (t % 4) : null)),
  advantage: [1.2, -0.7, 0.4, -0.9][s]!,
  truncated: false,
}));

/** B is not zero, so that every gradient is. */
function startAdapter(config: LoraConfig): Adapter {
  const tensors = new Map(
    [...adapterTensorNames(fused.architecture, config)].map(({ name, shape }, i): [string, Float32Array] => [
      name,
      testValues(shape[0] * shape[1], 300 + i, 0.05),
    ]),
  );
  return { config, tensors, baseModel: '' };
}

async function trained<T>(
  model: GpuModel,
  config: LoraConfig,
  groups: TrainSequence[][],
  steps: number,
  use: (trainer: Trainer) => Promise<T>,
  recompute = false,
): Promise<T> {
  const layout = adapterLayout(model.architecture, config);
  const trainer = createTrainer(
    gpu(),
    model,
    layout,
    startAdapter(config),
    { rows: 220, sequences: 4, length: 96, recompute },
    {
      loss: { ...goldenLoss().options('grpo'), beta: 0.04 },
      temperature: 0.9,
      adamw: adamwDefaults,
      maxGradNorm: 1,
      vocabulary: 318,
    },
  );
  for (let update = 1; update <= steps; update++)
    await trainer.step({ groups, update, learningRate: 1e-3, old: 'current' });
  const result = await use(trainer);
  trainer.destroy();
  return result;
}

const configs: Record<string, LoraConfig> = {
  'all linear layers': { rank: 8, alpha: 16, useRslora: false, targets: resolveTargets('all-linear') },
  'q, v and down alone': { rank: 4, alpha: 4, useRslora: false, targets: ['q_proj', 'v_proj', 'down_proj'] },
};

describe.each(Object.entries(configs))('the fused backward pass, LoRA on %s', (_, config) => {
  test('has the portable gradients within the rounding of operands', async () => {
    const wanted = await trained(portable, config, [all], 1, (trainer) => trainer.gradients());
    const found = await trained(fused, config, [all], 1, (trainer) => trainer.gradients());
    expect([...found.keys()]).toEqual([...wanted.keys()]);
    for (const [name, values] of wanted) {
      // Every operand of a product carries 11 bits, and a gradient passes up to eight of them here.
      expect([name, relativeL2(found.get(name)!, Float64Array.from(values)) < 6e-3]).toEqual([name, true]);
    }
  });

  test('ends two steps in the same bytes twice', async () => {
    const bytes = (trainer: Trainer) => trainer.state().then(({ adapter, ...moments }) => ({ adapter, ...moments }));
    const one = await trained(fused, config, [all.slice(0, 2), all.slice(2)], 2, bytes);
    expect(await trained(fused, config, [all.slice(0, 2), all.slice(2)], 2, bytes)).toEqual(one);
  });

  test.each(['fused', 'portable'])('ends in the same bytes with activations computed again, %s', async (kind) => {
    const model = kind === 'fused' ? fused : portable;
    const state = (trainer: Trainer) => trainer.state();
    const bytes = async (recompute: boolean) => {
      let most = 0;
      const result = await trained(
        model,
        config,
        [all],
        2,
        (trainer) => {
          most = memoryInUse(gpu());
          return state(trainer);
        },
        recompute,
      );
      return { result, most };
    };
    const kept = await bytes(false);
    const again = await bytes(true);
    expect(again.result).toEqual(kept.result);
    expect(again.most).toBeLessThan(kept.most);
  });
});
