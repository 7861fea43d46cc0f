// What the loss made of each trained token: its ratio, and whether clip or trust region took it out of the gradient.
// Not a loss: the definition is kernels/loss-terms.ts, which this asks token by token. Rollouts record neither ratio nor
// clip: both follow from recorded log-probs, the run's configuration, and log-probs of a later policy where there are any.
// Invariant: without those the ratio is 1 and nothing is clipped, because the policy is the sampler itself.
import { binaryDivergence, type LossScalars, tokenTerm } from '../kernels/loss-terms.ts';
import type { Episode } from '../rollout/episode.ts';
import { lossMask } from '../rollout/loss-mask.ts';
import type { RunConfig } from '../run-config.ts';

/**
 * `open`: the token pulls on the policy. `low`, `high`: its ratio is past the clip on the side where it has no gradient
 * left. `capped`: past the upper bound (cispo's cap, `delta`). `blocked`: masked by the trust region. `flat`: its
 * advantage is 0. `out`: the whole rollout is left out, because it was cut off.
 */
export type ClipState = 'open' | 'low' | 'high' | 'capped' | 'blocked' | 'flat' | 'out';

export interface ClipToken {
  state: ClipState;
  /** exp(log-prob - recorded log-prob); for gspo the row's, which all its tokens share. */
  ratio: number;
  /** dppo: the binary divergence from the sampler. Null for the other losses. */
  divergence: number | null;
}

export interface LossSettings {
  scalars: LossScalars;
  maskTruncated: boolean;
}

/** The loss of a run, without the reference term: a KL takes no token out. */
export function lossSettings({ grpo }: RunConfig): LossSettings {
  const { loss, epsilonLow, epsilonHigh, delta, cispoMaxRatio, dppoDelta, maskTruncated } = grpo;
  const scalars: LossScalars = {
    kind: loss,
    epsilonLow,
    epsilonHigh,
    delta,
    cispoMaxRatio,
    dppoDelta: dppoDelta ?? 0,
    beta: 0,
    klBiasCorrection: false,
  };
  return { scalars, maskTruncated };
}

/** The bounds in words, as the loss reads them. */
export function boundsText({ scalars }: LossSettings): string {
  const { kind, epsilonLow, epsilonHigh, delta, cispoMaxRatio, dppoDelta } = scalars;
  if (kind === 'cispo') return `cispo: ratio at most ${cispoMaxRatio}`;
  if (kind === 'dppo_tv' || kind === 'dppo_kl') {
    return `${kind}: divergence at most ${dppoDelta} where the ratio moves away`;
  }
  const bound = delta === null ? '' : `, at most ${delta} unclipped`;
  const low = Number((1 - epsilonLow).toFixed(6));
  const high = Number((1 + epsilonHigh).toFixed(6));
  return `${kind}: ratio in [${low}, ${high}]${bound}${kind === 'gspo' ? ', of the whole row' : ''}`;
}

/**
 * The state of every token, null where none is trained on or its log-prob is unknown. `current`: log-probs of a later
 * policy by token; null for the sampler itself, the policy of a batch's first use. `advantage`: the rollout's.
 */
export function clipStates(
  episode: Pick<Episode, 'ids' | 'mask' | 'logprobs' | 'turns'>,
  current: readonly (number | null)[] | null,
  advantage: number,
  { scalars, maskTruncated }: LossSettings,
): (ClipToken | null)[] {
  const kept = lossMask(episode, { maskTruncated });
  const ratios = episode.ids.map((_, i) => {
    const recorded = episode.logprobs[i] ?? null;
    const own = current === null ? recorded : (current[i] ?? null);
    return episode.mask[i] === 1 && recorded !== null && own !== null ? { recorded, own, log: own - recorded } : null;
  });
  const known = ratios.filter((one) => one !== null);
  const rowMean = known.reduce((sum, { log }) => sum + log, 0) / Math.max(1, known.length);
  const { kind } = scalars;
  return ratios.map((one, i): ClipToken | null => {
    if (!one) return null;
    const { recorded: anchor, own: logprob, log } = one;
    const logWeight = kind === 'gspo' ? rowMean : log;
    const term = tokenTerm(scalars, { logprob, anchor, reference: 0, advantage, logWeight });
    const divergence = kind === 'dppo_tv' || kind === 'dppo_kl' ? binaryDivergence(kind, logprob, anchor) : null;
    const found = { ratio: term.ratio, divergence };
    if (kept[i] === 0) return { ...found, state: 'out' };
    if (advantage === 0) return { ...found, state: 'flat' };
    if (term.blocked) return { ...found, state: 'blocked' };
    if (term.clippedLow) return { ...found, state: 'low' };
    if (term.clippedHigh) return { ...found, state: 'high' };
    const pastDelta = kind !== 'cispo' && divergence === null && scalars.delta !== null && term.ratio > scalars.delta;
    return { ...found, state: term.capped || (pastDelta && advantage < 0) ? 'capped' : 'open' };
  });
}
