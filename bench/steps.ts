// Times of what a run does: a step of decoding, a prefill, a training step, and a whole GRPO step.
// Not a run: no text, no environment, no stop ids; every member samples the same number of tokens, as the peers do.
// Invariant: it calls the sampler and the trainer that runs call.
import { performance } from 'node:perf_hooks';
import { memoryInUse } from '../src/gpu/buffers.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { createTrainer, type Trainer } from '../src/grpo/step.ts';
import { adamwDefaults } from '../src/kernels/adamw-reference.ts';
import { lossDefaults } from '../src/kernels/loss-terms.ts';
import { type AdapterLayout, adapterLayout } from '../src/model/adapter-gpu.ts';
import { initAdapter, type LoraConfig } from '../src/model/lora.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { TrainSequence } from '../src/rollout/pack.ts';
import { createSampler, type Sampler } from '../src/rollout/sampler.ts';
import { finish, type Limits, stepMs } from './measure.ts';
import type { BenchSettings } from './settings.ts';

/** The peers' sampling settings. */
const sampling = { temperature: 0.6, topK: 20, topP: 0.95, minP: 0 };

export interface DecodeFigure {
  batch: number;
  context: number;
  /** Median of the steps, and the best. */
  ms: number;
  bestMs: number;
  tokensPerSecond: number;
  /** Bytes of weights read a second, and as a share of the copy bandwidth. */
  weightGBs: number;
  ofCopy: number;
}

export interface StepFigure {
  group: number;
  promptTokens: number;
  newTokens: number;
  seconds: number;
  generateSeconds: number;
  trainSeconds: number;
  /** Sampled tokens a second of the whole step. */
  tokensPerSecond: number;
}

const token = (vocabulary: number, i: number) => (i * 7919 + 17) % vocabulary;

function samplerOf(gpu: Gpu, model: GpuModel, layout: AdapterLayout, slots: number, length: number, rows: number) {
  const shape = { slots, cacheLength: length, rows };
  return createSampler(gpu, model, shape, sampling, model.architecture.vocabSize, layout);
}

const key = (member: number, position: number) => ({ seed: 1, step: 1, group: 0, member, position });

/** One token of each of `batch` slots at a context, drawn and read back. The cache holds zeros: the work is the same. */
export function decodeOnce(sampler: Sampler, batch: number, context: number, vocabulary: number) {
  return sampler.step(
    Array.from({ length: batch }, (_, slot) => ({
      slot,
      start: context - 1,
      tokens: [token(vocabulary, slot)],
      key: key(slot, context),
    })),
  );
}

/** Steps of decoding at every batch and context. */
export async function measureDecode(
  gpu: Gpu,
  model: GpuModel,
  trainer: Trainer,
  settings: BenchSettings,
  limits: Limits,
): Promise<DecodeFigure[]> {
  const figures: DecodeFigure[] = [];
  for (const context of settings.contexts) {
    for (const batch of settings.batches) {
      const sampler = samplerOf(gpu, model, trainer.adapter.layout, batch, context, batch);
      sampler.use(trainer.adapter);
      try {
        const { best, median } = await stepMs(settings.budgetMs, settings.repeats, () =>
          decodeOnce(sampler, batch, context, model.architecture.vocabSize),
        );
        const weightGBs = model.bytes / median / 1e6;
        figures.push({
          batch,
          context,
          ms: median,
          bestMs: best,
          tokensPerSecond: (batch / median) * 1000,
          weightGBs,
          ofCopy: weightGBs / limits.copyGBs,
        });
      } finally {
        sampler.destroy();
      }
    }
  }
  return figures;
}

/** Prefill of `group` prompts in one pass. */
export async function measurePrefill(gpu: Gpu, model: GpuModel, trainer: Trainer, settings: BenchSettings) {
  const { group, promptTokens } = settings;
  const { vocabSize } = model.architecture;
  const sampler = samplerOf(gpu, model, trainer.adapter.layout, group, promptTokens, group * promptTokens);
  sampler.use(trainer.adapter);
  try {
    const work = Array.from({ length: group }, (_, slot) => ({
      slot,
      start: 0,
      tokens: Array.from({ length: promptTokens }, (_, t) => token(vocabSize, t + slot)),
      key: key(slot, promptTokens),
    }));
    const { median } = await stepMs(settings.budgetMs, settings.repeats, () => sampler.step(work));
    const tokens = group * promptTokens;
    return { sequences: group, tokens, ms: median, tokensPerSecond: (tokens / median) * 1000 };
  } finally {
    sampler.destroy();
  }
}

/** A trainer with a fresh adapter on every linear layer. One group is one micro-batch. */
export function makeTrainer(gpu: Gpu, model: GpuModel, lora: LoraConfig, settings: BenchSettings): Trainer {
  const { group, promptTokens, newTokens } = settings;
  const length = promptTokens + newTokens;
  const { architecture } = model;
  return createTrainer(
    gpu,
    model,
    adapterLayout(architecture, lora),
    initAdapter(architecture, lora, 1),
    { rows: group * length, sequences: group, length },
    {
      loss: { ...lossDefaults, beta: 0.1, maskTruncated: false, maxCompletionLength: newTokens },
      temperature: sampling.temperature,
      adamw: adamwDefaults,
      maxGradNorm: 1,
      vocabulary: architecture.vocabSize,
    },
  );
}

function sequencesOf(ids: readonly (readonly number[])[], promptTokens: number): TrainSequence[] {
  return ids.map((own, member) => ({
    ids: own,
    mask: own.map((_, t): 0 | 1 => (t < promptTokens ? 0 : 1)),
    sampled: own.map(() => -1),
    advantage: member % 2 === 0 ? 1 : -1,
    truncated: true,
  }));
}

/** Policy and reference log-probs, backward, clip and AdamW on one group. */
export function trainOnce(trainer: Trainer, ids: readonly (readonly number[])[], promptTokens: number, update: number) {
  return trainer.step({ groups: [sequencesOf(ids, promptTokens)], update, learningRate: 5e-6, old: 'current' });
}

/** Ids of a group, as if sampled. */
export function groupIds(settings: BenchSettings, vocabulary: number): number[][] {
  const length = settings.promptTokens + settings.newTokens;
  return Array.from({ length: settings.group }, (_, member) =>
    Array.from({ length }, (_, t) => token(vocabulary, t < settings.promptTokens ? t : t * 3 + member)),
  );
}

/** Seconds of one training step, the best of those that fit the budget. */
export async function measureTrain(gpu: Gpu, model: GpuModel, trainer: Trainer, settings: BenchSettings) {
  const ids = groupIds(settings, model.architecture.vocabSize);
  let update = 1;
  const { best } = await stepMs(settings.budgetMs, settings.repeats, () =>
    trainOnce(trainer, ids, settings.promptTokens, update++),
  );
  await finish(gpu);
  const tokens = ids.reduce((sum, own) => sum + own.length, 0);
  return { sequences: settings.group, tokens, seconds: best / 1000, tokensPerSecond: (tokens / best) * 1000 };
}

/** A whole GRPO step: the prompt once, copied to the group; every new token sampled; then the training step. */
export async function measureStep(
  gpu: Gpu,
  model: GpuModel,
  trainer: Trainer,
  settings: BenchSettings,
): Promise<StepFigure> {
  const { group, promptTokens, newTokens } = settings;
  const { vocabSize } = model.architecture;
  const sampler = samplerOf(gpu, model, trainer.adapter.layout, group, promptTokens + newTokens, promptTokens);
  sampler.use(trainer.adapter);
  try {
    await decodeOnce(sampler, group, promptTokens, vocabSize);
    const began = performance.now();
    const prompt = Array.from({ length: promptTokens }, (_, t) => token(vocabSize, t));
    await sampler.step([{ slot: 0, start: 0, tokens: prompt.slice(0, -1), key: null }]);
    for (let slot = 1; slot < group; slot++) sampler.fork(0, slot, promptTokens - 1);
    const ids = Array.from({ length: group }, () => [...prompt]);
    for (let t = 0; t < newTokens; t++) {
      const start = promptTokens - 1 + t;
      const work = ids.map((own, slot) => ({ slot, start, tokens: [own[start]!], key: key(slot, start + 1) }));
      for (const [slot, drawn] of (await sampler.step(work)).entries()) ids[slot]!.push(drawn!.id);
    }
    const generated = performance.now();
    await trainOnce(trainer, ids, promptTokens, 100);
    await finish(gpu);
    const ended = performance.now();
    const seconds = (ended - began) / 1000;
    return {
      group,
      promptTokens,
      newTokens,
      seconds,
      generateSeconds: (generated - began) / 1000,
      trainSeconds: (ended - generated) / 1000,
      tokensPerSecond: (group * newTokens) / seconds,
    };
  } finally {
    sampler.destroy();
  }
}

/** Bytes that the process holds on the device. */
export const deviceBytes = (gpu: Gpu): number => memoryInUse(gpu);
