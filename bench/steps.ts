// Times of what a run does: decoding, a prefill, a training step, and a whole GRPO step.
// Not a run: no text, no environment, no stop ids; every member samples the same number of tokens, as the peers do.
// Invariant: it calls the sampler and the trainer that runs call, in the way that they call them.
import { performance } from 'node:perf_hooks';
import { memoryInUse } from '../src/gpu/buffers.ts';
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { createTrainer, type Recomputed, type Trainer } from '../src/grpo/step.ts';
import { adamwDefaults } from '../src/kernels/adamw-reference.ts';
import { lossDefaults } from '../src/kernels/loss-terms.ts';
import { DeviceError, KernelError } from '../src/lib/errors.ts';
import { adapterLayout } from '../src/model/adapter-gpu.ts';
import { type Adapter, initAdapter, type LoraConfig } from '../src/model/lora.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { TrainSequence } from '../src/rollout/pack.ts';
import { createSampler, type Sampler, type SamplerShape } from '../src/rollout/sampler.ts';
import { cacheBytes, streamedBytes } from './cost.ts';
import { finish, stepMs } from './measure.ts';
import type { Limits } from './products.ts';
import type { BenchSettings } from './settings.ts';

/** The peers' sampling settings. */
export const sampling = { temperature: 0.6, topK: 20, topP: 0.95, minP: 0 };

/** What everything below works on. */
export interface Bench {
  gpu: Gpu;
  family: KernelFamily;
  model: GpuModel;
  trainer: Trainer;
  settings: BenchSettings;
  limits: Limits;
}

export interface DecodeFigure {
  batch: number;
  context: number;
  /** Of one token of every sequence: median over runs of several tokens, and the best. */
  ms: number;
  bestMs: number;
  tokensPerSecond: number;
  /** Weights and cache that a step reads, in bytes, and their rate as a share of the copy bandwidth. */
  bytes: number;
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
  /** Sampled tokens whose log-prob the trainer computed with other bits. */
  logprobMismatches: number;
}

/** What was drawn, by slot. */
export interface Continuation {
  ids: number[][];
  logprobs: number[][];
}

const token = (vocabulary: number, i: number) => (i * 7919 + 17) % vocabulary;

/** `count` token ids that differ from one `salt` to the next. */
export function tokensFrom(vocabulary: number, salt: number, count: number): number[] {
  return Array.from({ length: count }, (_, t) => token(vocabulary, t * 3 + salt));
}

/** A sampler with the trainer's adapter in use. */
export function samplerOf(
  { gpu, model, trainer }: Pick<Bench, 'gpu' | 'model' | 'trainer'>,
  shape: SamplerShape,
): Sampler {
  const made = createSampler(gpu, model, shape, sampling, model.architecture.vocabSize, trainer.adapter.layout);
  made.use(trainer.adapter);
  return made;
}

/** Steps that are sent together, and how many such blocks are under way: the device never waits for the host. */
const blockSteps = 8;
const blocks = 3;

/**
 * Draws `count` tokens in each of the slots 0 to last.length - 1. `last` are the slots' newest tokens, which stand at
 * position `at` and are not in the cache yet. This is how the bench decodes, everywhere: steps ahead of their results
 * where the sampler can, else one by one.
 */
export async function generate(
  sampler: Sampler,
  last: readonly number[],
  at: number,
  count: number,
  update: number,
): Promise<Continuation> {
  const ids: number[][] = last.map(() => []);
  const logprobs: number[][] = last.map(() => []);
  const keep = (results: readonly ({ id: number; logprob: number } | null)[]) => {
    for (const [slot, drawn] of results.entries()) {
      if (!drawn)
        throw new KernelError('no-draw', `decoding slot ${slot}: its logits are not finite; check the weights.`);
      ids[slot]!.push(drawn.id);
      logprobs[slot]!.push(drawn.logprob);
    }
  };
  const keyOf = (member: number, position: number) => ({ seed: 1, step: update, group: 0, member, position });
  if (sampler.decode) {
    const rows = last.map((token, slot) => ({ slot, position: at, token, key: keyOf(slot, at + 1) }));
    const decoding = sampler.decode(rows);
    const underWay: ReturnType<typeof decoding.send>[] = [];
    for (let sent = 0; sent < count || underWay.length > 0; ) {
      while (sent < count && underWay.length < blocks) {
        const steps = Math.min(blockSteps, count - sent);
        underWay.push(decoding.send(steps));
        sent += steps;
      }
      for (const results of await underWay.shift()!) keep(results);
    }
    return { ids, logprobs };
  }
  for (let start = at; start < at + count; start++) {
    const work = last.map((newest, slot) => {
      const tokens = [ids[slot]!.at(-1) ?? newest];
      return { slot, start, tokens, key: keyOf(slot, start + 1) };
    });
    keep(await sampler.step(work));
  }
  return { ids, logprobs };
}

/** Decoding at every batch and context: runs of some tokens round the context, in a cache of zeros (the work is the same). */
export async function measureDecode(
  bench: Bench,
  skipped: { what: string; reason: string }[],
): Promise<DecodeFigure[]> {
  const { gpu, model, settings, limits } = bench;
  const { vocabSize } = model.architecture;
  const figures: DecodeFigure[] = [];
  for (const context of settings.contexts) {
    for (const batch of settings.batches) {
      const count = Math.min(settings.decodeTokens, 2 * context - 2);
      const first = context - Math.ceil(count / 2);
      let sampler: Sampler;
      try {
        sampler = samplerOf(bench, { slots: batch, cacheLength: first + count, rows: batch });
      } catch (error) {
        if (!(error instanceof DeviceError) || error.code !== 'limit-too-small') throw error;
        skipped.push({ what: `decode, batch ${batch}, context ${context}`, reason: error.message });
        continue;
      }
      try {
        const last = tokensFrom(vocabSize, context, batch);
        // There may be many of these figures.
        const effort = { warmMs: settings.warmMs, budgetMs: settings.budgetMs / 4 };
        const { best, median } = await stepMs(effort, settings.repeats, () => generate(sampler, last, first, count, 1));
        const ms = median / count;
        const bytes = streamedBytes(model) + batch * context * cacheBytes(gpu, model);
        figures.push({
          batch,
          context,
          ms,
          bestMs: best / count,
          tokensPerSecond: (batch / ms) * 1000,
          bytes,
          ofCopy: bytes / ms / 1e6 / limits.copyGBs,
        });
      } finally {
        sampler.destroy();
      }
    }
  }
  return figures;
}

/** Prefill of `group` different prompts in one pass. */
export async function measurePrefill(bench: Bench) {
  const { group, promptTokens, repeats } = bench.settings;
  const { vocabSize } = bench.model.architecture;
  const sampler = samplerOf(bench, { slots: group, cacheLength: promptTokens, rows: group * promptTokens });
  try {
    const work = Array.from({ length: group }, (_, slot) => ({
      slot,
      start: 0,
      tokens: tokensFrom(vocabSize, slot, promptTokens),
      key: { seed: 1, step: 1, group: 0, member: slot, position: promptTokens },
    }));
    const { median } = await stepMs(bench.settings, repeats, () => sampler.step(work));
    const tokens = group * promptTokens;
    return { sequences: group, tokens, ms: median, tokensPerSecond: (tokens / median) * 1000 };
  } finally {
    sampler.destroy();
  }
}

/** A trainer with a fresh adapter on every linear layer, or the one given. One group is one micro-batch. */
export function makeTrainer(
  gpu: Gpu,
  model: GpuModel,
  lora: LoraConfig,
  settings: Pick<BenchSettings, 'group' | 'promptTokens' | 'newTokens'>,
  initial?: Adapter,
): Trainer {
  const { group, promptTokens, newTokens } = settings;
  const length = promptTokens + newTokens;
  const { architecture } = model;
  return createTrainer(
    gpu,
    model,
    adapterLayout(architecture, lora),
    initial ?? initAdapter(architecture, lora, 1),
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

function sequencesOf(prompt: readonly number[], { ids, logprobs }: Continuation): TrainSequence[] {
  return ids.map((own, member) => ({
    ids: [...prompt, ...own],
    mask: [...prompt.map((): 0 | 1 => 0), ...own.map((): 0 | 1 => 1)],
    sampled: [...prompt.map(() => null), ...logprobs[member]!],
    advantage: member % 2 === 0 ? 1 : -1,
    truncated: true,
  }));
}

function mismatchesOf(recomputed: readonly Recomputed[]): number {
  let count = 0;
  for (const { batches, logprobs } of recomputed) {
    for (const [b, { sampled }] of batches.entries()) {
      for (let i = 0; i < sampled.length; i++) count += Object.is(sampled[i], logprobs[b]![i]) ? 0 : 1;
    }
  }
  return count;
}

/**
 * Policy and reference log-probs, backward, clip and AdamW on one group, as `train` does it: the old log-probs are the
 * sampler's, and each is compared with the recomputed one. Returns how many differ.
 */
export async function trainOnce(
  trainer: Trainer,
  prompt: readonly number[],
  drawn: Continuation,
  update: number,
  learningRate = 5e-6,
): Promise<number> {
  let mismatches = 0;
  await trainer.step({
    groups: [sequencesOf(prompt, drawn)],
    update,
    learningRate,
    old: 'sampled',
    beforeUpdate: (recomputed) => {
      mismatches = mismatchesOf(recomputed);
    },
  });
  return mismatches;
}

/** A continuation as if it had been sampled: other ids for every member, and a log-prob that they may well have. */
export function inventedContinuation({ group, newTokens }: BenchSettings, vocabulary: number): Continuation {
  const ids = Array.from({ length: group }, (_, member) => tokensFrom(vocabulary, 101 + member, newTokens));
  return { ids, logprobs: ids.map((own) => own.map(() => Math.fround(-Math.log(vocabulary)))) };
}

/** Seconds of one training step, the best of those that fit the budget. */
export async function measureTrain({ gpu, model, trainer, settings }: Bench) {
  const { vocabSize } = model.architecture;
  const { group, promptTokens, newTokens, repeats } = settings;
  const prompt = tokensFrom(vocabSize, 0, promptTokens);
  const drawn = inventedContinuation(settings, vocabSize);
  let update = 1;
  const { best } = await stepMs(settings, repeats, () => trainOnce(trainer, prompt, drawn, update++));
  await finish(gpu);
  const tokens = group * (promptTokens + newTokens);
  return { sequences: group, tokens, seconds: best / 1000, tokensPerSecond: (tokens / best) * 1000 };
}

/** The rollouts of a group: the prompt once, copied to the members, then `count` tokens of each. */
export async function rollOut(
  sampler: Sampler,
  prompt: readonly number[],
  group: number,
  count: number,
  update: number,
): Promise<Continuation> {
  const cached = prompt.length - 1;
  if (cached > 0) {
    await sampler.step([{ slot: 0, start: 0, tokens: prompt.slice(0, -1), key: null }]);
    for (let slot = 1; slot < group; slot++) sampler.fork(0, slot, cached);
  }
  const last = Array.from({ length: group }, () => prompt.at(-1)!);
  return generate(sampler, last, cached, count, update);
}

/** A whole GRPO step, and the bytes on the device in it, after one of a few tokens that warms it up. */
export async function measureStep(bench: Bench): Promise<{ figure: StepFigure; peakBytes: number }> {
  const { gpu, model, trainer, settings } = bench;
  const { group, promptTokens, newTokens } = settings;
  const prompt = tokensFrom(model.architecture.vocabSize, 0, promptTokens);
  const sampler = samplerOf(bench, { slots: group, cacheLength: promptTokens + newTokens, rows: promptTokens });
  try {
    await rollOut(sampler, prompt, group, Math.min(newTokens, settings.decodeTokens), 99);
    const began = performance.now();
    const drawn = await rollOut(sampler, prompt, group, newTokens, 100);
    const generated = performance.now();
    const logprobMismatches = await trainOnce(trainer, prompt, drawn, 100);
    await finish(gpu);
    const ended = performance.now();
    const seconds = (ended - began) / 1000;
    const figure = {
      group,
      promptTokens,
      newTokens,
      seconds,
      generateSeconds: (generated - began) / 1000,
      trainSeconds: (ended - generated) / 1000,
      tokensPerSecond: (group * newTokens) / seconds,
      logprobMismatches,
    };
    return { figure, peakBytes: memoryInUse(gpu) };
  } finally {
    sampler.destroy();
  }
}
