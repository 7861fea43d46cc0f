// The bench's own work as a rehearsal: every batch of decoding, the prefill, the group's rollouts, and the training step,
// so that their pipelines compile side by side while the weights are read.
// Not a measurement. Invariant: what does not fit the device is left to the measurement, which says so.
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { DeviceError } from '../src/lib/errors.ts';
import type { LoraConfig } from '../src/model/lora.ts';
import type { Rehearsal } from '../src/model/warm-up.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { Limits } from './products.ts';
import type { BenchSettings } from './settings.ts';
import { type Bench, generate, inventedContinuation, makeTrainer, rollOut, samplerOf, trainOnce } from './steps.ts';

const noLimits: Limits = { copyGBs: 1, matmulGflops: 1, matmulShape: '' };

async function everything(bench: Bench): Promise<void> {
  const { settings, trainer } = bench;
  const { group, promptTokens, newTokens, contexts, batches, decodeTokens } = settings;
  const longest = Math.max(...contexts) + decodeTokens;
  for (const batch of batches) {
    const sampler = samplerOf(bench, { slots: batch, cacheLength: longest, rows: batch });
    for (const context of contexts) await generate(sampler, new Array<number>(batch).fill(0), context, 1, 1);
  }
  const sampler = samplerOf(bench, { slots: group, cacheLength: promptTokens + newTokens, rows: promptTokens });
  await rollOut(sampler, new Array<number>(promptTokens).fill(0), group, 1, 1);
  const tokens = new Array<number>(promptTokens).fill(0);
  const wide = samplerOf(bench, { slots: group, cacheLength: promptTokens, rows: group * promptTokens });
  const key = { seed: 1, step: 1, group: 0, member: 0, position: promptTokens };
  await wide.step(Array.from({ length: group }, (_, slot) => ({ slot, start: 0, tokens, key })));
  await trainOnce(trainer, tokens, inventedContinuation(settings, bench.model.architecture.vocabSize), 1);
}

/** The rehearsal of a bench with these settings, for `loadWarm`. */
export function rehearsalOf(family: KernelFamily, lora: LoraConfig, settings: BenchSettings): Rehearsal {
  return async (gpu: Gpu, model: GpuModel) => {
    try {
      const trainer = makeTrainer(gpu, model, lora, settings);
      await everything({ gpu, family, model, trainer, settings, limits: noLimits });
    } catch (error) {
      if (!(error instanceof DeviceError)) throw error;
    }
  };
}
