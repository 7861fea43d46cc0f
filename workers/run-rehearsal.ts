// What a training run does on its device, once and in little: for the pipelines that it will need (warm-up.ts).
// Not a run. Invariant: sampler and trainer are built as the run builds them, for the model that the rehearsal is given.
import type { Gpu } from '../src/gpu/device.ts';
import { createTrainer } from '../src/grpo/step.ts';
import { adapterLayout } from '../src/model/adapter-gpu.ts';
import { initAdapter, type LoraConfig } from '../src/model/lora.ts';
import type { Rehearsal } from '../src/model/warm-up.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { TrainSequence } from '../src/rollout/pack.ts';
import { createSampler, type SamplerShape } from '../src/rollout/sampler.ts';
import type { RunConfig } from '../src/run-config.ts';
import { trainerOptions } from '../src/trainer-options.ts';
import { trainerShape } from './run-trainer.ts';

/** Most tokens of the rehearsed sequences: with two of them, more rows than a product of few rows takes. */
const most = 48;

/** The sampler's shape in a run whose longest sequence has `length` tokens. */
export function samplerShape({ grpo }: RunConfig, length: number): SamplerShape {
  return { slots: grpo.groupSize * grpo.groupsPerStep, cacheLength: length, rows: 1024 };
}

/** The rehearsal of a run: a prefill, a pass that draws for every slot, steps ahead of their results, a training step. */
export function trainingRehearsal(config: RunConfig, lora: LoraConfig, length: number, vocabulary: number): Rehearsal {
  return async (gpu: Gpu, model: GpuModel) => {
    const arch = model.architecture;
    const layout = adapterLayout(arch, lora);
    const options = trainerOptions(config, vocabulary);
    const trainer = createTrainer(
      gpu,
      model,
      layout,
      initAdapter(arch, lora, config.seed),
      trainerShape(config, length),
      options,
    );
    const shape = samplerShape(config, length);
    const sampler = createSampler(gpu, model, shape, config.generation, vocabulary, layout);
    sampler.use(trainer.adapter);
    const count = Math.min(most, length - 4);
    const tokens = new Array<number>(count).fill(0);
    const slots = Array.from({ length: shape.slots }, (_, slot) => slot);
    const keyOf = (member: number, position: number) => ({ seed: 1, step: 1, group: 0, member, position });
    await sampler.step(
      [0, 1].map((slot) => ({ slot: slot % shape.slots, start: 0, tokens, key: null })).slice(0, slots.length),
    );
    for (const slot of slots.slice(1)) sampler.fork(0, slot, count);
    await sampler.step(slots.map((slot) => ({ slot, start: count, tokens: [0], key: keyOf(slot, count + 1) })));
    if (sampler.decode) {
      const rows = slots.map((slot) => ({ slot, position: count + 1, token: 0, key: keyOf(slot, count + 2) }));
      await sampler.decode(rows).send(1);
    }
    const sequence = (advantage: number): TrainSequence => ({
      ids: tokens,
      mask: tokens.map((_, t) => (t > count / 2 ? 1 : 0)),
      sampled: tokens.map((_, t) => (t > count / 2 ? 0 : null)),
      advantage,
      truncated: false,
    });
    const group = [sequence(1), sequence(-1)].slice(0, config.grpo.groupSize);
    await trainer.step({ groups: [group], update: 1, learningRate: 0, old: 'sampled' });
  };
}
