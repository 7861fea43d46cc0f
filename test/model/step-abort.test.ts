// Public bug case I6 in the optimizer step: a GPU error or a refused batch in mid-step ends the step before the update.
import { expect, test } from 'vitest';
import { openGpu } from '../../src/gpu/device.ts';
import { createTrainer, type Trainer } from '../../src/grpo/step.ts';
import { adamwDefaults } from '../../src/kernels/adamw-reference.ts';
import { AuditError, DeviceError } from '../../src/lib/errors.ts';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWeights } from '../../src/model/weights.ts';
import type { TrainSequence } from '../../src/rollout/pack.ts';
import { goldenPath } from '../support/golden.ts';
import { goldenLoss } from '../support/golden-loss.ts';

const golden = goldenLoss();

/** Two members of one group with opposite advantages. */
const group: TrainSequence[] = [1, -1].map((advantage, m) => {
  const ids = Array.from({ length: 12 }, (_, i) => (17 * i + 5 * m + 3) % 320);
  const mask = ids.map((_, i) => (i < 6 ? 0 : 1));
  return { ids, mask, sampled: mask.map((bit) => (bit ? -5 : null)), advantage, truncated: false };
});

async function withTrainer(work: (trainer: Trainer, device: GPUDevice) => Promise<void>): Promise<void> {
  const gpu = await openGpu();
  try {
    const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
    const model = await loadWeights(gpu, files, { positions: 16 });
    const initial = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
    const layout = adapterLayout(files.architecture, initial.config);
    const options = {
      loss: { ...golden.options('dapo'), beta: 0 },
      temperature: 1,
      adamw: adamwDefaults,
      maxGradNorm: 1,
      vocabulary: 320,
    };
    const trainer = createTrainer(gpu, model, layout, initial, { rows: 24, sequences: 2, length: 12 }, options);
    await work(trainer, gpu.device);
  } finally {
    gpu.destroy();
  }
}

const step = (trainer: Trainer, update: number, beforeUpdate?: () => void) =>
  trainer.step({
    groups: [group],
    update,
    learningRate: 0.01,
    old: 'current',
    ...(beforeUpdate ? { beforeUpdate } : {}),
  });

const flat = (state: Awaited<ReturnType<Trainer['state']>>) =>
  [state.adapter, state.m, state.v].map((tensors) => [...tensors].map(([name, values]) => [name, [...values]]));

test('I6: a refused batch changes no weight and no moment, and the next step is as if it had never been', async () => {
  await withTrainer(async (trainer) => {
    const before = flat(await trainer.state());
    const refuse = () => {
      throw new AuditError('audit-failed', 'refused by the test');
    };
    await expect(step(trainer, 1, refuse)).rejects.toThrow('refused by the test');
    expect(flat(await trainer.state())).toEqual(before);
    await step(trainer, 1);
    const after = flat(await trainer.state());
    expect(after).not.toEqual(before);
    await withTrainer(async (other) => {
      await step(other, 1);
      expect(flat(await other.state())).toEqual(after);
    });
  });
});

test('I6: a validation error in mid-step rejects the step with the message of the GPU, and nothing is read after it', async () => {
  await withTrainer(async (trainer, device) => {
    const spoil = () => {
      // MAP_READ and STORAGE exclude each other: an invalid buffer, and an error that nobody awaits.
      device.createBuffer({ label: 'spoilt', size: 16, usage: 0x81 });
    };
    const error = await step(trainer, 1, spoil).then(
      () => null,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(DeviceError);
    expect(String(error)).toMatch(
      /running GPU commands: .*Nothing of this step was kept; resume from the last checkpoint/s,
    );
    await expect(trainer.state()).rejects.toThrow(/Nothing of this step was kept/);
  });
});
