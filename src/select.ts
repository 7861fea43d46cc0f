// The preregistered selection rule over DEV evaluations: which step is recommended, and why.
// Not an assessment: it never sees a final test, and none can promote a step that it did not choose.
// Invariant: pure; a step is eligible only if it lost no math correctness and gained strict successes.
import { EvaluationError } from './lib/errors.ts';

export const SELECTION_RULE = 'german-agent/1';

/** The rule in words, as plans and reports state it. */
export const SELECTION_TEXT =
  "A step is eligible if its DEV math correctness is at least the baseline's and its strict agent successes are more " +
  "than the baseline's. Eligible steps rank by strict successes, then fewer tool errors, then the earlier step. " +
  'If none ' +
  'is eligible, the baseline stays the recommendation and the last step is assessed once as a diagnostic; no final ' +
  'test can promote it.';

/** What the rule reads of a policy's DEV evaluations. Counts are over the same samples for all policies. */
export interface DevPoint {
  /** Optimizer step; 0 is the baseline. */
  step: number;
  mathCorrect: number;
  mathSamples: number;
  strict: number;
  agentSamples: number;
  /** Errors that the environment itself reported. */
  toolErrors: number;
}

export interface RankedPoint extends DevPoint {
  eligible: boolean;
  /** Why it is not eligible; empty if it is. */
  reasons: string[];
  /** 1 is the best; null if not eligible. */
  rank: number | null;
}

export interface Selection {
  rule: typeof SELECTION_RULE;
  baseline: DevPoint;
  points: RankedPoint[];
  /** The step that is recommended, or null: the baseline stays. */
  selected: number | null;
  /** The step that goes into the final assessment: the selected one, or the last one as a diagnostic. */
  assessed: number;
  assessment: 'candidate' | 'diagnostic';
}

/**
 * Applies the rule. `points` are the DEV steps in any order; the last step is the diagnostic if none is eligible.
 * Throws EvaluationError `no-points` or `not-comparable` (other numbers of samples than the baseline's, a step twice).
 */
export function selectCandidate(baseline: DevPoint, points: readonly DevPoint[]): Selection {
  const last = Math.max(...points.map(({ step }) => step));
  if (points.length === 0) {
    throw new EvaluationError(
      'no-points',
      "selecting a step: found no DEV evaluation of a trained step; wanted at least one. Evaluate the plan's DEV " +
        'steps.',
    );
  }
  const seen = new Set<number>([baseline.step]);
  for (const point of points) {
    const same = point.mathSamples === baseline.mathSamples && point.agentSamples === baseline.agentSamples;
    if (!same || seen.has(point.step)) {
      const found = same
        ? `step ${point.step} twice`
        : `step ${point.step} with ${point.mathSamples} math and ${point.agentSamples} agent samples`;
      throw new EvaluationError(
        'not-comparable',
        `selecting a step: found ${found}; wanted each step once, with the baseline's ${baseline.mathSamples} ` +
          'math and ' +
          `${baseline.agentSamples} agent samples. Evaluate it again on the plan's items.`,
      );
    }
    seen.add(point.step);
  }
  const judged = [...points]
    .sort((a, b) => a.step - b.step)
    .map((point) => ({ ...point, reasons: reasonsAgainst(point, baseline) }));
  const ranking = judged.filter(({ reasons }) => reasons.length === 0).sort(better);
  const ranked = judged.map((point): RankedPoint => {
    const place = ranking.indexOf(point);
    return { ...point, eligible: place >= 0, rank: place < 0 ? null : place + 1 };
  });
  const selected = ranking[0]?.step ?? null;
  return {
    rule: SELECTION_RULE,
    baseline,
    points: ranked,
    selected,
    assessed: selected ?? last,
    assessment: selected === null ? 'diagnostic' : 'candidate',
  };
}

function reasonsAgainst(point: DevPoint, baseline: DevPoint): string[] {
  const reasons: string[] = [];
  if (!(point.mathCorrect >= baseline.mathCorrect)) {
    reasons.push(`math correctness ${point.mathCorrect} is below the baseline's ${baseline.mathCorrect}`);
  }
  if (!(point.strict > baseline.strict)) {
    reasons.push(`strict successes ${point.strict} are not more than the baseline's ${baseline.strict}`);
  }
  return reasons;
}

/** Order of the ranking: more strict successes, fewer tool errors, earlier step. */
function better(a: DevPoint, b: DevPoint): number {
  return b.strict - a.strict || a.toolErrors - b.toolErrors || a.step - b.step;
}
