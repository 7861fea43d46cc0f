// Temperature-scaled log-probabilities and entropy in f64, and the gradient from them back to the logits.
// Not the sampler's distribution: top-k, top-p and min-p never enter a training log-prob.
// Invariant: exp over the support sums to 1 at every temperature; ids outside the support have no log-prob.
import { logSoftmax, type SupportOptions } from '../../kernels/sampling-reference.ts';
import { PlanError } from '../../lib/errors.ts';

/** -sum p log p in nats of a row of log-probabilities; a zero probability adds 0. */
export function entropyOf(logprobs: ArrayLike<number>): number {
  let entropy = 0;
  for (let v = 0; v < logprobs.length; v++) {
    const p = Math.exp(logprobs[v]!);
    if (p > 0) entropy -= p * logprobs[v]!;
  }
  return entropy;
}

export interface TokenLogprobs {
  /** Entry i belongs to ids[i + 1] given ids[0..i], nats, [T - 1]. */
  logprobs: Float64Array;
  /** Entropy of the distribution that ids[i + 1] was drawn from, nats, [T - 1]. */
  entropy: Float64Array;
}

/** Log-prob of every predicted token of a sequence. logits: [T, vocab]. Throws PlanError for an id past the support. */
export function tokenLogprobs(logits: Float64Array, ids: readonly number[], options: SupportOptions): TokenLogprobs {
  const vocab = logits.length / ids.length;
  const logprobs = new Float64Array(ids.length - 1);
  const entropy = new Float64Array(ids.length - 1);
  for (let t = 0; t + 1 < ids.length; t++) {
    const id = ids[t + 1]!;
    if (id >= (options.support ?? vocab))
      throw new PlanError(
        'id-outside-support',
        `computing log-probs: id ${id} at position ${t + 1}; the tokenizer knows ${options.support} ids, the other ` +
          'logit rows are padding. Refuse the rollout: its sampler must mask those rows.',
      );
    const row = logSoftmax(logits.subarray(t * vocab, (t + 1) * vocab), options);
    logprobs[t] = row[id]!;
    entropy[t] = entropyOf(row);
  }
  return { logprobs, entropy };
}

/**
 * dLogits[t, v] = dLogprob[t] / temperature * ([v == ids[t + 1]] - p[t, v]). dLogprobs: [T - 1] -> [T, vocab]; the last
 * row, which predicts nothing, is zero.
 */
export function logitGradient(
  logits: Float64Array,
  ids: readonly number[],
  dLogprobs: ArrayLike<number>,
  options: SupportOptions,
): Float64Array {
  const vocab = logits.length / ids.length;
  const gradient = new Float64Array(logits.length);
  for (let t = 0; t + 1 < ids.length; t++) {
    const g = dLogprobs[t]! / options.temperature;
    if (g === 0) continue;
    const row = logSoftmax(logits.subarray(t * vocab, (t + 1) * vocab), options);
    for (let v = 0; v < vocab; v++) gradient[t * vocab + v] = -g * Math.exp(row[v]!);
    gradient[t * vocab + ids[t + 1]!]! += g;
  }
  return gradient;
}
