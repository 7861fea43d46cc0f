// Sums behind the loss metrics, so that groups and micro-batches combine exactly, and the metrics under TRL's names.
// Not TRL's averaging: TRL averages micro-batch means, these are means over all tokens of the step.
// Invariant: only tokens of the effective mask are counted, the same that numerator and denominator use.
import type { LossKind, TokenTerm } from '../kernels/loss-terms.ts';

export interface LossTallies {
  /** Tokens of the effective mask. */
  tokens: number;
  /** What ratios and clips are counted over: tokens, or for gspo the rows that have tokens. */
  units: number;
  kl: number;
  /** null where no entropies were given. */
  entropy: number | null;
  clippedLow: number;
  clippedHigh: number;
  capped: number;
  blocked: number;
  ratioSum: number;
  ratioMin: number;
  ratioMax: number;
  /** Smallest and largest clipped share of a row, over rows that have tokens. */
  rowLowMin: number;
  rowHighMax: number;
}

/** The neutral element of `mergeTallies`. */
export function emptyTallies(): LossTallies {
  return {
    tokens: 0,
    units: 0,
    kl: 0,
    entropy: null,
    clippedLow: 0,
    clippedHigh: 0,
    capped: 0,
    blocked: 0,
    ratioSum: 0,
    ratioMin: Number.POSITIVE_INFINITY,
    ratioMax: Number.NEGATIVE_INFINITY,
    rowLowMin: Number.POSITIVE_INFINITY,
    rowHighMax: Number.NEGATIVE_INFINITY,
  };
}

/** Tallies of one row from its unmasked tokens' terms and entropies. A row without tokens counts nowhere. */
export function rowTallies(kind: LossKind, terms: readonly TokenTerm[], entropies: readonly number[] | null) {
  const tallies = emptyTallies();
  if (terms.length === 0) return tallies;
  tallies.tokens = terms.length;
  if (entropies) tallies.entropy = entropies.reduce((sum, value) => sum + value, 0);
  for (const term of terms) tallies.kl += term.kl;
  // All tokens of a gspo row share one ratio, so the row counts once (TRL's shape [B, 1]).
  const units = kind === 'gspo' ? terms.slice(0, 1) : terms;
  tallies.units = units.length;
  for (const term of units) {
    tallies.clippedLow += Number(term.clippedLow);
    tallies.clippedHigh += Number(term.clippedHigh);
    tallies.capped += Number(term.capped);
    tallies.blocked += Number(term.blocked);
    tallies.ratioSum += term.ratio;
    tallies.ratioMin = Math.min(tallies.ratioMin, term.ratio);
    tallies.ratioMax = Math.max(tallies.ratioMax, term.ratio);
  }
  tallies.rowLowMin = tallies.clippedLow / units.length;
  tallies.rowHighMax = tallies.clippedHigh / units.length;
  return tallies;
}

/** Tallies of two disjoint sets of rows. */
export function mergeTallies(a: LossTallies, b: LossTallies): LossTallies {
  const entropy = a.entropy === null ? b.entropy : b.entropy === null ? a.entropy : a.entropy + b.entropy;
  return {
    tokens: a.tokens + b.tokens,
    units: a.units + b.units,
    kl: a.kl + b.kl,
    entropy,
    clippedLow: a.clippedLow + b.clippedLow,
    clippedHigh: a.clippedHigh + b.clippedHigh,
    capped: a.capped + b.capped,
    blocked: a.blocked + b.blocked,
    ratioSum: a.ratioSum + b.ratioSum,
    ratioMin: Math.min(a.ratioMin, b.ratioMin),
    ratioMax: Math.max(a.ratioMax, b.ratioMax),
    rowLowMin: Math.min(a.rowLowMin, b.rowLowMin),
    rowHighMax: Math.max(a.rowHighMax, b.rowHighMax),
  };
}

/**
 * Metrics of a step: TRL's `kl` (beta != 0 only), `entropy`, `clip_ratio/*` (clip kinds) and `cispo_clip_ratio`; ours
 * are `dppo/masked_fraction` and `policy_ratio/{mean,min,max}`. Empty where no token was trained on.
 */
export function lossMetrics(tallies: LossTallies, kind: LossKind, beta: number): Record<string, number> {
  const { tokens, units } = tallies;
  if (tokens === 0) return {};
  const metrics: Record<string, number> = {};
  if (beta !== 0) metrics['kl'] = tallies.kl / tokens;
  if (tallies.entropy !== null) metrics['entropy'] = tallies.entropy / tokens;
  if (kind === 'cispo') metrics['cispo_clip_ratio'] = tallies.capped / units;
  else if (kind === 'dppo_tv' || kind === 'dppo_kl') metrics['dppo/masked_fraction'] = tallies.blocked / units;
  else {
    metrics['clip_ratio/low_mean'] = tallies.clippedLow / units;
    metrics['clip_ratio/low_min'] = tallies.rowLowMin;
    metrics['clip_ratio/high_mean'] = tallies.clippedHigh / units;
    metrics['clip_ratio/high_max'] = tallies.rowHighMax;
    metrics['clip_ratio/region_mean'] = (tallies.clippedLow + tallies.clippedHigh) / units;
  }
  metrics['policy_ratio/mean'] = tallies.ratioSum / units;
  metrics['policy_ratio/min'] = tallies.ratioMin;
  metrics['policy_ratio/max'] = tallies.ratioMax;
  return metrics;
}
