// How far an experiment's rollouts may reach into a model's positions: longest prompt and cap of each set, frozen in
// the plan. Not the sampling. Invariant: prompt and cap of every item fit into max_position_embeddings; a cap below the
// recipe's is in the plan only where the recipe says `"positions": "clamp"`, and never for the training.
import { z } from 'zod';
import { germanPrompts, type LongestPrompt, longestPrompt, mathPrompts } from '../item-prompts.ts';
import { PlanError } from '../lib/errors.ts';
import type { Text } from '../model/text.ts';
import type { ExperimentData } from './data.ts';
import type { Recipe } from './recipe.ts';

export const ROLLOUT_SETS = ['training', 'dev-agent', 'dev-math', 'final-agent', 'retention-math'] as const;
type RolloutSet = (typeof ROLLOUT_SETS)[number];

const setPositions = z.strictObject({
  /** Tokens of the longest prompt, and the first item that has it. */
  longestPrompt: z.int().min(1),
  longestItem: z.string(),
  /** Retained tokens after the prompt: the recipe's maxCompletionTokens, or what it was clamped to. */
  completionCap: z.int().min(1),
});

export const planPositions = z.strictObject({
  /** The model's: max_position_embeddings of its config.json. */
  model: z.int().min(1),
  sets: z.strictObject({
    training: setPositions,
    'dev-agent': setPositions,
    'dev-math': setPositions,
    'final-agent': setPositions,
    'retention-math': setPositions,
  } satisfies Record<RolloutSet, typeof setPositions>),
});
export type PlanPositions = z.infer<typeof planPositions>;

/** The longest prompt of each set of rollouts. */
export function measurePrompts(
  text: Text,
  { train, dev, final, mathDev, mgsm }: ExperimentData,
  enableThinking: boolean,
): Record<RolloutSet, LongestPrompt> {
  const longest = (prompts: Parameters<typeof longestPrompt>[1]) => longestPrompt(text, prompts, enableThinking);
  return {
    training: longest(germanPrompts(train)),
    'dev-agent': longest(germanPrompts(dev)),
    'dev-math': longest(mathPrompts(mathDev)),
    'final-agent': longest(germanPrompts(final)),
    'retention-math': longest(mathPrompts(mgsm)),
  };
}

/** Why a set does not fit, as found, wanted and remedy; null where it does, or where it is clamped. */
function problemOf(
  set: RolloutSet,
  { id, tokens }: LongestPrompt,
  { training: { generation }, positions }: Recipe,
  model: number,
): string | null {
  const { maxCompletionTokens: cap, maxPromptTokens } = generation;
  const item = `${set}: found item ${id} with a prompt of ${tokens} tokens`;
  if (set === 'training' && tokens > maxPromptTokens) {
    return `${item}; wanted at most training.generation.maxPromptTokens, ${maxPromptTokens}. Raise it to ${tokens}`;
  }
  const room = model - tokens;
  if (cap <= room) return null;
  const wanted = `; wanted at most ${model}, the positions of the model`;
  if (room < 1) return `${item}${wanted}, and room for an answer. Take the item out, or use another model`;
  const found = `${item}, ${tokens + cap} with training.generation.maxCompletionTokens, ${cap}`;
  const lower = `Lower maxCompletionTokens to ${room} or less`;
  if (set === 'training') return `${found}${wanted}. ${lower}`;
  if (positions === 'clamp') return null;
  return `${found}${wanted}. ${lower}, or set "positions" to "clamp" in the recipe, which caps ${set} at ${room}`;
}

/**
 * Positions of every set for a model that has `model` of them. Throws PlanError `too-few-positions`, naming all sets
 * that do not fit with their longest item. `label` is the model's folder.
 */
export function positionsOf(
  recipe: Recipe,
  measured: Readonly<Record<RolloutSet, LongestPrompt>>,
  model: number,
  label: string,
): PlanPositions {
  const problems = ROLLOUT_SETS.flatMap((set) => problemOf(set, measured[set], recipe, model) ?? []);
  if (problems.length > 0) {
    throw new PlanError(
      'too-few-positions',
      `preparing rollouts of ${label}, whose config.json has max_position_embeddings ${model}: ${problems.join('.\n')}.`,
    );
  }
  const { maxCompletionTokens: cap } = recipe.training.generation;
  const place = ({ id, tokens }: LongestPrompt) => ({
    longestPrompt: tokens,
    longestItem: id,
    completionCap: Math.min(cap, model - tokens),
  });
  const sets = Object.fromEntries(ROLLOUT_SETS.map((set) => [set, place(measured[set])]));
  return { model, sets: sets as PlanPositions['sets'] };
}

/** Sets whose cap is below the recipe's, in order. */
export function clampedSets({ sets }: PlanPositions, { training }: Recipe): RolloutSet[] {
  return ROLLOUT_SETS.filter((set) => sets[set].completionCap < training.generation.maxCompletionTokens);
}
