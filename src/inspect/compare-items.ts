// Two evaluations, or two runs' rollouts, item by item: who won which.
// Not a test of significance (src/evaluation/compare.ts). Invariant: an item is on a side at most once, and items that
// only one side has are listed, not dropped.
import type { EvaluationFile, EvaluationItem } from '../evaluation/results.ts';
import type { EpisodeSummary } from './skim.ts';

/** How one side did on one item; null success where the environment failed. */
export interface Side {
  success: boolean | null;
  reward: number | null;
  tokens: number;
  capped: boolean;
  answer: string | null;
  text: string | null;
  /** The rollout, where there is one to open. */
  rollout: EpisodeSummary | null;
}

export type Outcome = 'win' | 'loss' | 'both' | 'neither' | 'only-a' | 'only-b' | 'unscored';

export interface ItemPair {
  key: string;
  a: Side | null;
  b: Side | null;
  /** Of b against a. */
  outcome: Outcome;
}

function outcomeOf(a: Side | null, b: Side | null): Outcome {
  if (!a) return 'only-b';
  if (!b) return 'only-a';
  if (a.success === null || b.success === null) return 'unscored';
  if (a.success === b.success) return a.success ? 'both' : 'neither';
  return b.success ? 'win' : 'loss';
}

/** Joins two keyed lists, in a's order and then b's. */
export function pairSides(a: ReadonlyMap<string, Side>, b: ReadonlyMap<string, Side>): ItemPair[] {
  const keys = [...a.keys(), ...[...b.keys()].filter((key) => !a.has(key))];
  return keys.map((key) => {
    const [one, other] = [a.get(key) ?? null, b.get(key) ?? null];
    return { key, a: one, b: other, outcome: outcomeOf(one, other) };
  });
}

function itemSide(item: EvaluationItem): Side {
  const failed = item.outcome === 'infrastructure';
  return {
    success: failed ? null : (item.strict ?? item.outcome === 'correct'),
    reward: item.reward ?? null,
    tokens: item.sampledTokens,
    capped: item.capped,
    answer: item.answer ?? null,
    text: item.finalText,
    rollout: null,
  };
}

/** The samples of an evaluation by item and seed. */
export function evaluationSides({ items }: EvaluationFile): Map<string, Side> {
  return new Map(items.map((item) => [`${item.id}, seed ${item.seed}`, itemSide(item)]));
}

/** A run's rollouts by step, task and member; a member's place in its group is what two runs share. */
export function rolloutSides(rows: readonly EpisodeSummary[]): Map<string, Side> {
  return new Map(
    rows.map((row) => [
      `step ${row.step}, ${row.taskId}, member ${row.member}`,
      {
        success: row.strict,
        reward: row.reward,
        tokens: row.sampledTokens,
        capped: row.capped,
        answer: row.answer,
        text: null,
        rollout: row,
      },
    ]),
  );
}

/** How many pairs had each outcome. */
export function countOutcomes(pairs: readonly ItemPair[]): Record<Outcome, number> {
  const counts = { win: 0, loss: 0, both: 0, neither: 0, 'only-a': 0, 'only-b': 0, unscored: 0 };
  for (const { outcome } of pairs) counts[outcome] += 1;
  return counts;
}
