// The f64 oracle of the whole model over several ragged sequences: log-probs and entropies out, LoRA gradients back.
// Not used in training: it is what the GPU's forward, backward and step are compared with.
// Invariant: a sequence's log-probs depend on its own ids alone; gradients add up in the order of the sequences.
import type { SupportOptions } from '../kernels/sampling-reference.ts';
import { PlanError } from '../lib/errors.ts';
import { referenceBackward } from './reference/backward.ts';
import { type ReferenceTrace, referenceForward } from './reference/forward.ts';
import { logitGradient, type TokenLogprobs, tokenLogprobs } from './reference/logprobs.ts';
import { type ReferenceAdapter, type ReferenceModel, zeroGradients } from './reference/weights.ts';

export interface ReferenceScore extends TokenLogprobs {
  trace: ReferenceTrace;
}

/** Teacher-forced log-probs and entropies of each sequence; a null adapter is the base model. */
export function referenceScores(
  model: ReferenceModel,
  adapter: ReferenceAdapter | null,
  sequences: readonly (readonly number[])[],
  options: SupportOptions,
): ReferenceScore[] {
  return sequences.map((ids) => {
    const trace = referenceForward(model, ids, adapter);
    return { trace, ...tokenLogprobs(trace.logits, ids, options) };
  });
}

/**
 * Adapter gradients of a loss. `scores` as from `referenceScores` with the same adapter and options; dLogprobs[r]:
 * dLoss/dlogprob of sequence r, [T - 1]. Throws PlanError where the lengths disagree.
 */
export function referenceGradients(
  model: ReferenceModel,
  adapter: ReferenceAdapter,
  scores: readonly ReferenceScore[],
  dLogprobs: readonly ArrayLike<number>[],
  options: SupportOptions,
): Map<string, Float64Array> {
  const gradients = zeroGradients(adapter);
  scores.forEach(({ trace, logprobs }, r) => {
    const gradient = dLogprobs[r];
    if (gradient?.length !== logprobs.length)
      throw new PlanError(
        'gradient-length',
        `back-propagating sequence ${r} of the f64 reference: ${gradient?.length ?? 'no'} gradients for ` +
          `${logprobs.length} log-probs; they must be equal in number. Pass one entry per predicted token.`,
      );
    referenceBackward(model, trace, adapter, logitGradient(trace.logits, trace.ids, gradient, options), gradients);
  });
  return gradients;
}

/** Global L2 norm over all tensors of a gradient, f64. */
export function gradientNorm(gradients: ReadonlyMap<string, ArrayLike<number>>): number {
  let squares = 0;
  for (const tensor of gradients.values()) for (let i = 0; i < tensor.length; i++) squares += tensor[i]! ** 2;
  return Math.sqrt(squares);
}
