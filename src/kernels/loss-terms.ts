// The policy objective of one token and its derivative: the definition that the grpo-gradient kernel mirrors.
// Not an aggregation: masks, sums and normalisers are in losses.ts. Formulas: TRL 1.13.0's GRPOTrainer._compute_loss
// and the DPPO paper (arXiv 2602.04879), equations 11 to 14.
// Invariant: mask, clip and ratio of a token all come from the same log-ratio, so they cannot disagree.

export const lossKinds = ['grpo', 'bnpo', 'dapo', 'dr_grpo', 'cispo', 'gspo', 'dppo_tv', 'dppo_kl'] as const;
export type LossKind = (typeof lossKinds)[number];

/** The scalars of a loss: the uniforms of the GPU kernel. */
export interface LossScalars {
  kind: LossKind;
  /** Clip of the ratio: [1 - epsilonLow, 1 + epsilonHigh]. */
  epsilonLow: number;
  epsilonHigh: number;
  /** Upper bound on the unclipped branch (two-sided clipping); null = none. */
  delta: number | null;
  /** cispo: the cap on the detached ratio itself, not 1 + something (TRL passes its epsilon_high here). */
  cispoMaxRatio: number;
  /** dppo: the divergence above which a token that moves away from the sampler is masked. */
  dppoDelta: number;
  /** Weight of the k3 KL against the reference; 0 = none. It is added for every kind (the DPPO paper has none). */
  beta: number;
  /** Multiply the KL by the differentiable ratio (TRL 1.13's default; 0.29 has it off). */
  klBiasCorrection: boolean;
}

export const lossDefaults: LossScalars = {
  kind: 'dapo',
  epsilonLow: 0.2,
  epsilonHigh: 0.2,
  delta: null,
  cispoMaxRatio: 2,
  dppoDelta: 0.1,
  beta: 0,
  klBiasCorrection: false,
};

export interface TokenInputs {
  logprob: number;
  /** Log-prob under the policy that the ratio is taken against: old for all kinds, the sampler's for dppo. */
  anchor: number;
  /** Log-prob under the reference; read only where beta != 0. */
  reference: number;
  advantage: number;
  /** The log-ratio: logprob - anchor, or for gspo the row's masked mean of it. */
  logWeight: number;
}

export interface TokenTerm {
  /** l_it, before the normaliser. */
  loss: number;
  /** Derivative through the log-ratio: to this token for token-level kinds, over the row's mean for gspo. */
  dLogWeight: number;
  /** Derivative by this token's log-prob apart from the log-ratio (cispo's carrier, the KL). */
  dLogprob: number;
  /** The KL as it enters the loss: with the ratio where the bias correction is on. */
  kl: number;
  /** exp(logWeight) */
  ratio: number;
  /** c1 < 1 - epsilonLow with A < 0, c1 > 1 + epsilonHigh with A > 0, where c1 is the ratio after `delta`. */
  clippedLow: boolean;
  clippedHigh: boolean;
  /** cispo: ratio above the cap with A > 0. */
  capped: boolean;
  /** dppo: masked by the trust region. */
  blocked: boolean;
}

/**
 * Binary divergence D between sampler and policy at the sampled token, from their log-probs: total variation |a - b|,
 * or KL a ln(a/b) + (1-a) ln((1-a+1e-8) / (1-b+1e-8)), a = exp(anchor), b = exp(logprob).
 */
export function binaryDivergence(kind: 'dppo_tv' | 'dppo_kl', logprob: number, anchor: number): number {
  const a = Math.exp(anchor);
  const b = Math.exp(logprob);
  if (kind === 'dppo_tv') return Math.abs(a - b);
  // 1e-8 inside both, not a clamp of a and b: 1 - 1e-9 is 1 in f32 and would give 0 * -Infinity. A log-prob that
  // rounding left above 0 must not make 1 - a negative. a ln(a/b) from the log-probs is 0 where a underflows.
  const restA = Math.max(0, 1 - a);
  const restB = Math.max(0, 1 - b);
  return a * (anchor - logprob) + restA * Math.log((restA + 1e-8) / (restB + 1e-8));
}

/** The objective of one unmasked token. Pure; every branch is one select in WGSL. */
export function tokenTerm(scalars: LossScalars, token: TokenInputs): TokenTerm {
  const { kind, epsilonLow, epsilonHigh, beta } = scalars;
  const { logprob, anchor, reference, advantage, logWeight } = token;
  const ratio = Math.exp(logWeight);
  const term: TokenTerm = {
    loss: 0,
    dLogWeight: 0,
    dLogprob: 0,
    kl: 0,
    ratio,
    clippedLow: false,
    clippedHigh: false,
    capped: false,
    blocked: false,
  };
  if (kind === 'cispo') {
    const carried = Math.min(ratio, scalars.cispoMaxRatio) * advantage;
    term.loss = -carried * logprob;
    term.dLogprob = -carried;
    term.capped = ratio > scalars.cispoMaxRatio && advantage > 0;
  } else if (kind === 'dppo_tv' || kind === 'dppo_kl') {
    const away = (advantage > 0 && logWeight > 0) || (advantage < 0 && logWeight < 0);
    term.blocked = away && binaryDivergence(kind, logprob, anchor) > scalars.dppoDelta;
    if (!term.blocked) term.loss = term.dLogWeight = -ratio * advantage;
  } else {
    const delta = scalars.delta ?? Number.POSITIVE_INFINITY;
    const open = Math.min(ratio, delta);
    const clipped = Math.min(Math.max(ratio, 1 - epsilonLow), 1 + epsilonHigh);
    const openGradient = ratio <= delta ? ratio : 0;
    const clippedGradient = clipped === ratio ? ratio : 0;
    term.loss = -Math.min(open * advantage, clipped * advantage);
    // Equal branches share the derivative, as torch.min does; they have the same one wherever the ratio is in range.
    const share = open * advantage < clipped * advantage ? 1 : open * advantage > clipped * advantage ? 0 : 0.5;
    term.dLogWeight = -advantage * (share * openGradient + (1 - share) * clippedGradient);
    term.clippedLow = open < 1 - epsilonLow && advantage < 0;
    term.clippedHigh = open > 1 + epsilonHigh && advantage > 0;
  }
  if (beta !== 0) {
    const gap = reference - logprob;
    const k3 = Math.expm1(gap) - gap;
    const weight = scalars.klBiasCorrection ? ratio : 1;
    term.kl = weight * k3;
    term.loss += beta * term.kl;
    term.dLogprob += -beta * weight * Math.expm1(gap);
    if (scalars.klBiasCorrection) term.dLogWeight += beta * term.kl;
  }
  return term;
}
