// What a run's configuration says of its trainer in Node: the adapter that it starts from, and sizes.
// Not the run (train-node.ts). Invariant: training and the audit's recomputation build their trainer from this alone.
import type { Task } from '../src/environments/port.ts';
import type { Gpu } from '../src/gpu/device.ts';
import type { TrainerShape } from '../src/grpo/step.ts';
import { germanPrompts, longestPrompt } from '../src/item-prompts.ts';
import { PlanError } from '../src/lib/errors.ts';
import { type LoadedAdapter, loadAdapter } from '../src/model/adapter-files.ts';
import type { BaseModel } from '../src/model/base-node.ts';
import type { Architecture } from '../src/model/config.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { type Adapter, initAdapter } from '../src/model/lora.ts';
import type { RunConfig } from '../src/run-config.ts';
import { loraOf } from '../src/trainer-options.ts';

/** What a journal and a seal record of a device. */
export function deviceFacts(gpu: Gpu): Record<string, string> {
  const { vendor, architecture, device, description, dawn } = gpu.identity;
  return { vendor, architecture, device, description, dawn };
}

/** `loaded`: as its folder gave it, to be checked against its canary; null for a new adapter. */
export interface StartingAdapter extends Adapter {
  loaded: LoadedAdapter | null;
}

/** The adapter before the first step: a new one by the seed, or the folder that the configuration names. */
export async function startingAdapter(config: RunConfig, base: BaseModel): Promise<StartingAdapter> {
  const arch = base.files.architecture;
  if (config.adapter === null) {
    return { ...initAdapter(arch, loraOf(config), config.seed, config.model), loaded: null };
  }
  const loaded = await loadAdapter(folderSource(config.adapter), arch);
  return { config: loaded.config, baseModel: loaded.baseModel || config.model, tensors: loaded.tensors, loaded };
}

/** Tokens of the longest sequence. */
export function runLength({ generation }: RunConfig, arch: Architecture): number {
  return Math.min(arch.maxPositions, generation.maxPromptTokens + generation.maxCompletionTokens);
}

/**
 * Refuses a run whose prompts leave no room for its completions in the model's positions, before a step is taken, with
 * PlanError `too-few-positions`. Prompts of a service are not known before it gives them: then the limit that they will
 * have is returned as a note; null where nothing is to be said.
 */
export function requirePositions(config: RunConfig, tasks: readonly Task[], { files, text }: BaseModel): string | null {
  const { maxPromptTokens, maxCompletionTokens, enableThinking } = config.generation;
  const { maxPositions } = files.architecture;
  if (maxPromptTokens + maxCompletionTokens <= maxPositions) return null;
  const room = maxPositions - maxCompletionTokens;
  const german = config.data.environment === 'german';
  const prompt = german ? longestPrompt(text, germanPrompts(tasks), enableThinking) : { id: '', tokens: 1 };
  if (prompt.tokens > room) {
    const found = german ? `task ${prompt.id} with a prompt of ${prompt.tokens} tokens` : 'prompts of a token or more';
    const remedy =
      prompt.tokens < maxPositions
        ? `Lower generation.maxCompletionTokens to ${maxPositions - prompt.tokens} or less.`
        : 'Use a model with more positions.';
    throw new PlanError(
      'too-few-positions',
      `starting a run of ${config.model}: found ${found}, ${prompt.tokens + maxCompletionTokens} with ` +
        `generation.maxCompletionTokens, ${maxCompletionTokens}; wanted at most ${maxPositions}, the positions of the ` +
        `model (max_position_embeddings in its config.json). ${remedy}`,
    );
  }
  if (german) return null;
  return `the model has ${maxPositions} positions: a prompt of more than ${room} tokens will stop the run`;
}

/** Room for one group a micro-batch. */
export function trainerShape({ grpo, recomputeActivations }: RunConfig, length: number): TrainerShape {
  return { rows: grpo.groupSize * length, sequences: grpo.groupSize, length, recompute: recomputeActivations };
}
