// Every sampled token's log-prob and entropy against those of a reference pass and of the trainer's pass, bit for bit,
// for batches of several sizes.
// Not a tolerance and not a figure of speed. Invariant: a token that any of the passes gives other bits is counted.
import { defaultLora } from '../src/doctor.ts';
import type { Gpu } from '../src/gpu/device.ts';
import type { Trainer } from '../src/grpo/step.ts';
import { testValues } from '../src/kernels/case-data.ts';
import { type Adapter, initAdapter, type LoraConfig } from '../src/model/lora.ts';
import type { RowScores } from '../src/model/scorer.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { TrainSequence } from '../src/rollout/pack.ts';
import { planMembers, positionsOf, type SampledMember, sampleMembers } from './batch-members.ts';
import { referencePass } from './reference-pass.ts';
import type { TokenSettings } from './settings.ts';
import { makeTrainer, samplerOf, sampling } from './steps.ts';

/** Sampled tokens for which a pass has other bits. */
export interface Differences {
  logprobs: number;
  entropies: number;
}

export interface TokenComparison {
  batch: number;
  members: number;
  tokens: number;
  /** Tokens that were drawn while every slot drew one. */
  fullTokens: number;
  reference: Differences;
  trainer: Differences;
  /** Tokens that an earlier batch drew for the same member too, and how many differ in id, log-prob or entropy. */
  earlier: { tokens: number; differ: number };
}

/** Whether no token differs anywhere, and some were compared in each batch. */
export function sameTokens(comparison: readonly TokenComparison[]): boolean {
  return (
    comparison.length > 0 &&
    comparison.every(({ tokens, reference, trainer, earlier }) => {
      const found = [reference, trainer].reduce((sum, { logprobs, entropies }) => sum + logprobs + entropies, 0);
      return tokens > 0 && found + earlier.differ === 0;
    })
  );
}

/** Sequences of a micro-batch of the trainer's pass. */
const together = 4;

/** Positions that the model must be loaded for. */
export function positionsFor(vocabulary: number, settings: TokenSettings): number {
  return Math.max(...settings.batches.map((batch) => positionsOf(planMembers(vocabulary, settings, batch))));
}

/** A fresh adapter, but with values in B: with zeros it would change nothing. */
function filledAdapter(model: GpuModel, lora: LoraConfig): Adapter {
  const adapter = initAdapter(model.architecture, lora, 1);
  for (const [i, [name, values]] of [...adapter.tensors].entries())
    if (name.endsWith('lora_B')) values.set(testValues(values.length, i, 0.01));
  return adapter;
}

/** A trainer whose pass and adapter are compared with, for sequences of the settings. */
export function comparedTrainer(gpu: Gpu, model: GpuModel, settings: TokenSettings): Trainer {
  const lora = defaultLora(settings.rank);
  const length = positionsFor(model.architecture.vocabSize, settings);
  const sizes = { group: together, promptTokens: 0, newTokens: length };
  return makeTrainer(gpu, model, lora, sizes, filledAdapter(model, lora));
}

/** The same bits; a NaN is like nothing, not even like itself. */
const same = (a: number, b: number | undefined) => Object.is(a, b) && a === b;

function differencesOf(sampled: readonly SampledMember[], scored: readonly RowScores[]): Differences {
  const found: Differences = { logprobs: 0, entropies: 0 };
  for (const [i, { drawn }] of sampled.entries()) {
    for (const [t, { logprob, entropy }] of drawn.entries()) {
      if (!same(logprob, scored[i]?.logprobs[t])) found.logprobs += 1;
      if (!same(entropy, scored[i]?.entropies[t])) found.entropies += 1;
    }
  }
  return found;
}

const sequenceOf = ({ prompt, drawn }: SampledMember): TrainSequence => ({
  ids: [...prompt, ...drawn.map(({ id }) => id)],
  mask: [...prompt.map((): 0 | 1 => 0), ...drawn.map((): 0 | 1 => 1)],
  sampled: [...prompt.map(() => null), ...drawn.map(({ logprob }) => logprob)],
  advantage: 0,
  truncated: true,
});

/** What the reference pass and the trainer's pass say of sampled members' tokens, under the trainer's adapter. */
export async function comparePasses(
  gpu: Gpu,
  model: GpuModel,
  trainer: Trainer,
  sampled: readonly SampledMember[],
): Promise<{ reference: Differences; trainer: Differences }> {
  const sequences = sampled.map(sequenceOf);
  const length = Math.max(...sequences.map(({ ids }) => ids.length));
  // No multiple of anything: passes end in the middle of sequences, prompts and tiles.
  const shape = { rows: 2 * length + 37, slots: 2 * together, cacheLength: length };
  const reference = await referencePass(gpu, model, trainer.adapter, sequences, shape, sampling.temperature);
  return {
    reference: differencesOf(sampled, reference),
    trainer: differencesOf(sampled, await trainer.score(sequences)),
  };
}

/** Compares with what earlier batches drew for the same members, and keeps what is longer. */
function compareEarlier(known: Map<number, SampledMember>, sampled: readonly SampledMember[]) {
  const earlier = { tokens: 0, differ: 0 };
  for (const one of sampled) {
    const before = known.get(one.member);
    const count = Math.min(one.drawn.length, before?.drawn.length ?? 0);
    for (let t = 0; t < count; t++) {
      const [a, b] = [one.drawn[t]!, before!.drawn[t]!];
      earlier.tokens += 1;
      if (!(a.id === b.id && same(a.logprob, b.logprob) && same(a.entropy, b.entropy))) earlier.differ += 1;
    }
    if (count < one.drawn.length) known.set(one.member, one);
  }
  return earlier;
}

/** Samples the members of one batch under the trainer's adapter. */
export async function sampleBatch(
  gpu: Gpu,
  model: GpuModel,
  trainer: Trainer,
  settings: TokenSettings,
  batch: number,
): Promise<{ sampled: SampledMember[]; fullTokens: number }> {
  const members = planMembers(model.architecture.vocabSize, settings, batch);
  const longPrompt = settings.promptTokens[1];
  const shape = { slots: batch, cacheLength: positionsOf(members), rows: batch + Math.ceil(longPrompt / 2) };
  const sampler = samplerOf({ gpu, model, trainer }, shape);
  try {
    return await sampleMembers(sampler, members);
  } finally {
    sampler.destroy();
  }
}

/** Samples every batch of the settings and compares all its tokens. The model must have `positionsFor` positions. */
export async function compareTokens(
  gpu: Gpu,
  model: GpuModel,
  settings: TokenSettings,
  onProgress: (batch: number) => void = () => {},
): Promise<TokenComparison[]> {
  const trainer = comparedTrainer(gpu, model, settings);
  const known = new Map<number, SampledMember>();
  const comparison: TokenComparison[] = [];
  try {
    for (const batch of settings.batches) {
      onProgress(batch);
      const { sampled, fullTokens } = await sampleBatch(gpu, model, trainer, settings, batch);
      const tokens = sampled.reduce((sum, { drawn }) => sum + drawn.length, 0);
      const passes = await comparePasses(gpu, model, trainer, sampled);
      comparison.push({
        batch,
        members: sampled.length,
        tokens,
        fullTokens,
        ...passes,
        earlier: compareEarlier(known, sampled),
      });
    }
    return comparison;
  } finally {
    trainer.destroy();
  }
}
