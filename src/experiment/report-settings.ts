// The frozen numbers of a plan as a report states them: what was asked for, and what the model's positions left of it.
// Not results. Pure. Invariant: every row is read from the plan.
import type { Plan } from './plan.ts';
import { ROLLOUT_SETS } from './positions.ts';

export interface CapRow {
  set: (typeof ROLLOUT_SETS)[number];
  longestPrompt: number;
  longestItem: string;
  /** Retained tokens after the prompt. */
  cap: number;
}

export interface CapFacts {
  /** Positions of the model. */
  positions: number;
  /** The recipe's cap; a row below it was clamped. */
  asked: number;
  sets: CapRow[];
}

export function capFacts({ positions, recipe }: Plan): CapFacts {
  return {
    positions: positions.model,
    asked: recipe.training.generation.maxCompletionTokens,
    sets: ROLLOUT_SETS.map((set) => {
      const { longestPrompt, longestItem, completionCap } = positions.sets[set];
      return { set, longestPrompt, longestItem, cap: completionCap };
    }),
  };
}

/** Settings by name, in the order of the protocol. */
export function settingsOf({ recipe }: Plan): Record<string, string> {
  const { training: t, dev, final, retention, comparison, budget, kernels, qualification } = recipe;
  const { generation: g, grpo, optimizer, lora, data } = t;
  const { enableThinking: thinking } = g;
  const targets = lora.targets === 'all-linear' ? 'all linear layers' : lora.targets.join(', ');
  const decay = optimizer.schedule === 'linear' ? 'linear decay to 0, no warm-up' : 'constant';
  return {
    optimization: `${t.steps} steps, each of ${grpo.groupsPerStep} group${grpo.groupsPerStep === 1 ? '' : 's'} of ${grpo.groupSize} rollouts; loss ${grpo.loss}, beta ${grpo.beta}`,
    optimizer: `AdamW, learning rate ${optimizer.learningRate}, ${decay}, gradient norm at most ${optimizer.maxGradNorm}`,
    LoRA: `rank ${lora.rank}, alpha ${lora.alpha}, ${targets}`,
    sampling: `temperature ${g.temperature}, top-p ${g.topP}, top-k ${g.topK}, min-p ${g.minP}, thinking ${thinking ? 'on' : 'off'}`,
    'tool rounds': `at most ${g.maxToolRounds}`,
    'training data': `${data.count} TRAIN episodes, data seed ${data.seeds.train}, training seed ${t.seed}`,
    checkpoints: `sealed every ${t.checkpoints.every} steps`,
    'resume qualification': `${qualification.steps} steps, stopped after ${qualification.stopAfter}`,
    DEV: `at steps ${dev.steps.join(', ')}: ${dev.episodes} episodes and ${dev.mathItems} math items, seed ${dev.seed}`,
    'final assessment': `${final.episodes} episodes, seeds ${final.seeds.join(', ')}, the ${final.policy === 'merged' ? 'merged model' : 'adapter'}`,
    retention: `${retention.items} items, seeds ${retention.seeds.join(', ')}`,
    comparison: `${comparison.resamples} bootstrap resamples of items, seed ${comparison.seed}`,
    budget: `${budget.wallSeconds} s of wall time, heartbeat every ${budget.heartbeatSeconds} s`,
    'kernel family': kernels.family,
  };
}
