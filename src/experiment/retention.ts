// Whether a policy kept what the baseline could: the retention requirement over paired evaluations.
// Not a proof of no harm: it says that no loss was observed on these items and seeds. Pure.
// Invariant: the requirement is met only if correct answers are at least the baseline's overall and at every seed.
import type { Comparison } from '../evaluation/compare.ts';

export interface RetentionVerdict {
  met: boolean;
  overall: { baseline: number; candidate: number; met: boolean };
  perSeed: { seed: number; baseline: number; candidate: number; met: boolean }[];
}

/** Applies the requirement to a comparison of baseline (a) and candidate (b). */
export function retentionVerdict({ a, b, perSeed, leftOut }: Comparison): RetentionVerdict {
  const judge = (baseline: number, candidate: number) => ({ baseline, candidate, met: candidate >= baseline });
  const overall = judge(a.correct, b.correct);
  const seeds = perSeed.map(({ seed, a: baseline, b: candidate }) => ({ seed, ...judge(baseline, candidate) }));
  // A sample that a service lost was not observed, so nothing can be said of it.
  return { met: leftOut === 0 && overall.met && seeds.every(({ met }) => met), overall, perSeed: seeds };
}

/** What is recommended in the end. A diagnostic is never promoted. */
export function recommendation(
  assessment: 'candidate' | 'diagnostic',
  step: number,
  retention: RetentionVerdict,
): { recommended: 'baseline' | 'candidate'; step: number | null; reason: string } {
  if (assessment === 'diagnostic') {
    const reason = 'no step was eligible on DEV; the last step was assessed as a diagnostic only';
    return { recommended: 'baseline', step: null, reason };
  }
  if (!retention.met) {
    const reason = `step ${step} was selected on DEV, and a loss was observed in the retention test`;
    return { recommended: 'baseline', step: null, reason };
  }
  return { recommended: 'candidate', step, reason: `step ${step} was selected on DEV; no retention loss was observed` };
}
