import { describe, expect, test } from 'vitest';
import { createTrainer } from '../../src/grpo/step.ts';
import { adamwDefaults } from '../../src/kernels/adamw-reference.ts';
import type { LossKind } from '../../src/kernels/loss-terms.ts';
import { lossKinds } from '../../src/kernels/loss-terms.ts';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { adapterLayout, loadGpuAdapter } from '../../src/model/adapter-gpu.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWeights } from '../../src/model/weights.ts';
import type { TrainSequence } from '../../src/rollout/pack.ts';
import { goldenData, goldenPath, relativeL2 } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';
import { loraTensors } from '../support/golden-model.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const golden = goldenLoss();
const withTensors: readonly LossKind[] = ['grpo', 'dppo_tv'];

/** The golden batch as the trainer takes it: the golden's old log-probs are the sampler's. */
function sequences(): TrainSequence[] {
  return golden.sequences.map((ids, r) => {
    const mask: (0 | 1)[] = ids.map(() => 0);
    const sampled: (number | null)[] = ids.map(() => null);
    for (let t = 0; t < 28; t++) {
      if (golden.batch.mask[r * 28 + t] !== 1) continue;
      mask[golden.promptLength + t] = 1;
      sampled[golden.promptLength + t] = golden.batch.old![r * 28 + t]!;
    }
    return { ids, mask, sampled, advantage: golden.batch.advantages[r]!, truncated: false };
  });
}

/** The golden's reference log-probs of trained tokens, in order. */
function references(): Float32Array {
  const all = golden.batch.reference!;
  return Float32Array.from(Array.from(golden.batch.mask).flatMap((bit, i) => (bit === 1 ? [all[i]!] : [])));
}

describe('the reference policy', () => {
  test('is a frozen copy where training starts from an adapter: the first KL is exactly 0, and then grows', async () => {
    const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
    const model = await loadWeights(gpu(), files, { positions: 64 });
    const initial = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
    const layout = adapterLayout(files.architecture, initial.config);
    const frozen = loadGpuAdapter(gpu(), files.architecture, initial);
    const options = {
      loss: { ...golden.options('dapo'), beta: 0.1 },
      temperature: golden.temperature,
      adamw: adamwDefaults,
      maxGradNorm: 1,
      vocabulary: 320,
    };
    const shape = { rows: 200, sequences: 4, length: 40 };
    const trainer = createTrainer(gpu(), model, layout, initial, shape, options, frozen);
    const kl = [];
    for (const update of [1, 2]) {
      const result = await trainer.step({ groups: [sequences()], update, learningRate: 0.01, old: 'sampled' });
      kl.push(result.metrics['kl']!);
    }
    expect(kl[0]).toBe(0);
    expect(kl[1]).toBeGreaterThan(0);
    trainer.destroy();
    model.destroy();
  });
});

describe('accumulation', () => {
  test('of bnpo normalises by the micro-batch: two of them weigh their own tokens, one weighs all', async () => {
    const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
    const model = await loadWeights(gpu(), files, { positions: 64 });
    const initial = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
    const layout = adapterLayout(files.architecture, initial.config);
    const groups = [sequences().slice(0, 1), sequences().slice(1, 4)];
    const tokens = groups.map((group) => group.flatMap(({ mask }) => mask).reduce((sum: number, bit) => sum + bit, 0));
    const lossOf = async (kind: LossKind, accumulation: number, only?: number) => {
      const trainer = createTrainer(
        gpu(),
        model,
        layout,
        initial,
        { rows: 200, sequences: 4, length: 40 },
        {
          loss: { ...golden.options(kind), beta: 0 },
          temperature: golden.temperature,
          adamw: adamwDefaults,
          maxGradNorm: 1,
          vocabulary: 320,
        },
      );
      const chosen = only === undefined ? groups : [groups[only]!];
      const { loss } = await trainer.step({ groups: chosen, update: 1, learningRate: 0, old: 'sampled', accumulation });
      trainer.destroy();
      return loss;
    };
    const own = [await lossOf('bnpo', 1, 0), await lossOf('bnpo', 1, 1)];
    expect(await lossOf('bnpo', 2)).toBeCloseTo((own[0]! + own[1]!) / 2, 6);
    const all = (own[0]! * tokens[0]! + own[1]! * tokens[1]!) / (tokens[0]! + tokens[1]!);
    expect(await lossOf('bnpo', 1)).toBeCloseTo(all, 6);
    expect(await lossOf('dapo', 2)).toBeCloseTo(all, 6);
    model.destroy();
  });
});

describe('the policy gradient on the device', () => {
  test.each(lossKinds)('gives the golden loss, gradient norm and LoRA gradients of %s', async (kind) => {
    const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
    const model = await loadWeights(gpu(), files, { positions: 64 });
    const initial = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
    const layout = adapterLayout(files.architecture, initial.config);
    const trainer = createTrainer(
      gpu(),
      model,
      layout,
      initial,
      { rows: 200, sequences: 4, length: 40 },
      {
        loss: golden.options(kind),
        temperature: golden.temperature,
        adamw: adamwDefaults,
        maxGradNorm: 1,
        vocabulary: 320,
      },
    );
    const result = await trainer.step({
      groups: [sequences()],
      update: 1,
      learningRate: 0,
      old: 'sampled',
      reference: [[references()]],
    });
    const wantedLoss = goldenData(golden.file, `${kind}.loss`)[0]!;
    const wantedNorm = goldenData(golden.file, `${kind}.grad_norm`)[0]!;
    expect(Math.abs(result.loss - wantedLoss)).toBeLessThan(1e-5);
    expect(Math.abs(result.gradNorm - wantedNorm) / wantedNorm).toBeLessThan(1e-4);
    if (withTensors.includes(kind)) {
      const found = await trainer.gradients();
      for (const [name, wanted] of loraTensors(golden.file, `${kind}.grad.`)) {
        expect(relativeL2(found.get(name)!, wanted), name).toBeLessThan(1e-4);
      }
    }
    trainer.destroy();
    model.destroy();
  });
});
