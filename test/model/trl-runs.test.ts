// Two recorded runs of TRL's GRPOTrainer, four optimizer steps each, repeated on the device from their batches alone:
// the adapter starts at TRL's step 0, and every later weight is our own.
import { describe, expect, test } from 'vitest';
import { learningRate } from '../../src/grpo/schedule.ts';
import { createTrainer } from '../../src/grpo/step.ts';
import { adamwDefaults } from '../../src/kernels/adamw-reference.ts';
import { lossDefaults } from '../../src/kernels/loss-terms.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import type { Adapter } from '../../src/model/lora.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWeights } from '../../src/model/weights.ts';
import type { TrainSequence } from '../../src/rollout/pack.ts';
import { goldenPath, readGolden, relativeL2 } from '../support/golden.ts';
import { type TrlStep, trlStep } from '../support/golden-loss.ts';
import { goldenLora, loraTensors } from '../support/golden-model.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

/** A recorded batch as the trainer takes it; the stored old log-probs, where there are any, as the sampler's. */
function toSequences(step: TrlStep): TrainSequence[] {
  let at = 0;
  return step.sequences.map((ids, r) => {
    const prompt = step.promptLengths[r]!;
    const sampled = ids.map((_, t) => (t < prompt ? null : (step.old ?? step.logprobs)[at + t - prompt]!));
    at += ids.length - prompt;
    return {
      ids,
      mask: ids.map((_, t) => (t < prompt ? 0 : 1)),
      sampled,
      advantage: step.advantages[r]!,
      truncated: false,
    };
  });
}

describe.each(['grpo', 'dapo'] as const)('the recorded TRL run with loss %s', (kind) => {
  test('is reproduced on the device over four steps: loss, KL, gradient norm, LoRA update', async () => {
    const file = readGolden(`trl-${kind}-4-steps.safetensors`);
    const config = file.metadata['config'] as Record<string, number> & { use_bias_correction_kl: boolean };
    const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
    const model = await loadWeights(gpu(), files, { positions: 64 });
    const start = loraTensors(file, 'step0.');
    const tensors = new Map([...start].map(([name, data]) => [name, Float32Array.from(data)]));
    const initial: Adapter = { config: goldenLora, baseModel: '', tensors };
    const layout = adapterLayout(files.architecture, initial.config);
    const trainer = createTrainer(
      gpu(),
      model,
      layout,
      initial,
      { rows: 200, sequences: 4, length: 64 },
      {
        loss: {
          ...lossDefaults,
          kind,
          epsilonLow: config['epsilon']!,
          epsilonHigh: config['epsilon']!,
          beta: config['beta']!,
          klBiasCorrection: config.use_bias_correction_kl,
          maskTruncated: false,
          maxCompletionLength: config['max_completion_length']!,
        },
        temperature: config['temperature']!,
        adamw: { ...adamwDefaults, eps: config['adam_epsilon']! },
        maxGradNorm: config['max_grad_norm']!,
        vocabulary: 320,
      },
    );
    const schedule = { kind: 'linear', base: config['learning_rate']!, totalSteps: config['max_steps']! } as const;
    for (const k of [1, 2, 3, 4]) {
      const step = trlStep(file, k);
      const result = await trainer.step({
        groups: [toSequences(step)],
        update: k,
        learningRate: learningRate(k, schedule),
        old: step.old ? 'sampled' : 'current',
      });
      const near = (actual: number, wanted: number) =>
        expect(Math.abs(actual - wanted) / Math.abs(wanted)).toBeLessThan(1e-3);
      near(result.loss, step.log.loss);
      near(result.metrics['kl']!, step.log.kl);
      near(result.gradNorm, step.log.grad_norm);
      const state = await trainer.state();
      const [update, wanted]: [number[], number[]] = [[], []];
      for (const [name, data] of loraTensors(file, `step${k}.`)) {
        const before = start.get(name)!;
        const found = state.adapter.get(name)!;
        for (let i = 0; i < data.length; i++) {
          update.push(found[i]! - before[i]!);
          wanted.push(data[i]! - before[i]!);
        }
      }
      expect(relativeL2(update, wanted), `step ${k}`).toBeLessThan(1e-3);
    }
    trainer.destroy();
    model.destroy();
  });
});
