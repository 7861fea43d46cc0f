// f64 reference of the sampler's distribution: temperature, top-k, top-p, min-p, in that order, as transformers has it.
// Not the GPU's algorithm (that sorts nothing): the definition of which ids are kept and with what probability.
// Invariant: ids >= support are never kept, at least one id is, and training log-probs ignore all filters.
import { KernelError } from '../lib/errors.ts';

export interface SupportOptions {
  /** Logits are divided by it before the softmax; > 0. */
  temperature: number;
  /** The first `support` logit rows take part (padded vocabulary rows do not), in sampling and training alike. */
  support?: number;
}

export interface SamplingOptions extends SupportOptions {
  /** Keep the k largest; every id tied with the k-th stays. 0 = off. */
  topK: number;
  /** Keep the smallest set of largest probabilities whose sum exceeds p. 1 = off. */
  topP: number;
  /** Drop ids whose probability is below minP times the largest. 0 = off. */
  minP: number;
}

/** log_softmax(logits[0..support) / temperature) of one row; -Infinity beyond the support. Throws KernelError. */
export function logSoftmax(logits: ArrayLike<number>, options: SupportOptions): Float64Array {
  const { temperature, support = logits.length } = options;
  if (!(temperature > 0 && Number.isFinite(temperature)))
    throw new KernelError(
      'temperature',
      `computing log-probs: temperature is ${temperature}; it must be a finite number above 0. A greedy rollout has ` +
        'no log-probs to train on: sample at a temperature such as 1, or only evaluate.',
    );
  if (!(Number.isInteger(support) && support >= 1 && support <= logits.length))
    throw new KernelError(
      'support',
      `computing log-probs: support is ${support} of ${logits.length} logits; wanted 1..${logits.length}. Pass the ` +
        "number of ids that the tokenizer knows, at most the model's vocabulary size.",
    );
  const result = new Float64Array(logits.length).fill(Number.NEGATIVE_INFINITY);
  let max = Number.NEGATIVE_INFINITY;
  for (let v = 0; v < support; v++) if (logits[v]! / temperature > max) max = logits[v]! / temperature;
  let sum = 0;
  for (let v = 0; v < support; v++) sum += Math.exp(logits[v]! / temperature - max);
  const logSum = max + Math.log(sum);
  for (let v = 0; v < support; v++) result[v] = logits[v]! / temperature - logSum;
  return result;
}

/**
 * The renormalised distribution that the sampler draws from, [vocab], zero outside the kept set.
 *
 * Ties. Top-k keeps every id tied with the k-th largest, so more than k may stay (as in transformers). Top-p drops from
 * the small end while the cumulative probability is <= 1 - p, and of equal probabilities the higher ids go first:
 * transformers drops as many, but which of them is left to torch's unstable sort, so no rule could match it. Min-p
 * drops strictly below its threshold, so an id exactly on it stays. Each filter sees what the previous one left,
 * renormalised.
 */
export function samplingDistribution(logits: ArrayLike<number>, options: SamplingOptions): Float64Array {
  const { temperature, topK, topP, minP, support = logits.length } = options;
  checkFilters(options);
  logSoftmax(logits, options); // validates the temperature and the support
  const scores = new Float64Array(logits.length).fill(Number.NEGATIVE_INFINITY);
  for (let v = 0; v < support; v++) scores[v] = logits[v]! / temperature;
  if (topK > 0) keepTopK(scores, Math.min(topK, support));
  if (topP < 1) keepTopP(scores, topP);
  if (minP > 0) {
    const probabilities = softmax(scores);
    const threshold = minP * probabilities.reduce((a, b) => Math.max(a, b), 0);
    for (let v = 0; v < scores.length; v++) if (probabilities[v]! < threshold) scores[v] = Number.NEGATIVE_INFINITY;
  }
  return softmax(scores);
}

export interface SampledLogprobs {
  /** At the temperature over the whole support: what training recomputes and the audit compares. */
  logprob: number;
  /** Under the truncated, renormalised distribution; -Infinity for an id that was filtered out. */
  truncatedLogprob: number;
  /** The probability of the kept set before renormalising: exp(logprob - truncatedLogprob) for every kept id. */
  keptMass: number;
}

/** What is recorded with one sampled id. */
export function sampledLogprobs(logits: ArrayLike<number>, id: number, options: SamplingOptions): SampledLogprobs {
  const full = logSoftmax(logits, options);
  const truncated = samplingDistribution(logits, options);
  let keptMass = 0;
  for (let v = 0; v < truncated.length; v++) if (truncated[v]! > 0) keptMass += Math.exp(full[v]!);
  return { logprob: full[id]!, truncatedLogprob: Math.log(truncated[id]!), keptMass };
}

function checkFilters({ topK, topP, minP }: SamplingOptions): void {
  const bad =
    !(Number.isInteger(topK) && topK >= 0) || !(topP > 0 && topP <= 1) || !(minP >= 0 && minP <= 1)
      ? `topK ${topK}, topP ${topP}, minP ${minP}`
      : null;
  if (bad)
    throw new KernelError(
      'sampling-filter',
      `filtering logits: found ${bad}; wanted an integer topK >= 0, 0 < topP <= 1, 0 <= minP <= 1. Use 0, 1 and 0 to ` +
        'switch them off.',
    );
}

function softmax(scores: Float64Array): Float64Array {
  let max = Number.NEGATIVE_INFINITY;
  for (const score of scores) if (score > max) max = score;
  const weights = scores.map((score) => Math.exp(score - max));
  let sum = 0;
  for (const weight of weights) sum += weight;
  return weights.map((weight) => weight / sum);
}

function keepTopK(scores: Float64Array, k: number): void {
  const kth = Float64Array.from(scores).sort()[scores.length - k]!;
  for (let v = 0; v < scores.length; v++) if (scores[v]! < kth) scores[v] = Number.NEGATIVE_INFINITY;
}

function keepTopP(scores: Float64Array, topP: number): void {
  const order = Array.from(scores.keys()).sort((a, b) => {
    const difference = scores[a]! - scores[b]!;
    return difference === 0 || Number.isNaN(difference) ? b - a : difference; // NaN: both are -Infinity
  });
  const probabilities = softmax(scores);
  let cumulative = 0;
  // The last in the order, an id of the largest probability, always stays.
  for (const v of order.slice(0, -1)) {
    cumulative += probabilities[v]!;
    if (cumulative <= 1 - topP) scores[v] = Number.NEGATIVE_INFINITY;
  }
}
