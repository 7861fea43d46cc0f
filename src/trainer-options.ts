// What a run's configuration says of adapter, loss and optimizer, for Node and the browser.
// Not sizes and not files. Invariant: every trainer of a run, wherever it is made, has these options and no others.
import type { TrainerOptions } from './grpo/step.ts';
import { type LoraConfig, resolveTargets } from './model/lora.ts';
import type { RunConfig } from './run-config.ts';

/** The adapter that a configuration asks for. */
export function loraOf({ lora }: RunConfig): LoraConfig {
  const { rank, alpha, rslora, targets } = lora;
  return { rank, alpha, useRslora: rslora, targets: resolveTargets(targets === 'all-linear' ? targets : [...targets]) };
}

/** Loss, temperature and optimizer. */
export function trainerOptions({ grpo, generation, optimizer }: RunConfig, vocabulary: number): TrainerOptions {
  return {
    loss: {
      kind: grpo.loss,
      epsilonLow: grpo.epsilonLow,
      epsilonHigh: grpo.epsilonHigh,
      delta: grpo.delta,
      cispoMaxRatio: grpo.cispoMaxRatio,
      dppoDelta: grpo.dppoDelta ?? 0,
      beta: grpo.beta,
      klBiasCorrection: grpo.klBiasCorrection,
      maskTruncated: grpo.maskTruncated,
      maxCompletionLength: generation.maxCompletionTokens,
    },
    temperature: generation.temperature,
    adamw: {
      beta1: optimizer.beta1,
      beta2: optimizer.beta2,
      eps: optimizer.epsilon,
      weightDecay: optimizer.weightDecay,
    },
    maxGradNorm: optimizer.maxGradNorm,
    vocabulary,
  };
}
