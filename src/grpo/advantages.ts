// Group-relative advantages: (reward - mean of the group) / (std + 1e-4), as TRL's GRPOTrainer computes them.
// Departs from TRL: all arithmetic is f64 and rounded to f32 once (TRL rounds each operation), and a group of equal
// rewards, or with fewer than two scorable rows, gives exactly 0.
// Invariant: an unscorable row (no reward) takes no part in any mean, std or signal check, and has advantage 0.
import { PlanError } from '../lib/errors.ts';

/** What the deviation is divided by: the group's std, the std over all rows, or nothing. */
export type AdvantageScale = 'group' | 'batch' | 'none';

/** Added to the std, never under the root. */
export const advantageEps = 1e-4;

export interface AdvantageOptions {
  /** Rollouts of one prompt; the rows of a group are adjacent. */
  groupSize: number;
  scale: AdvantageScale;
  /** `normalize_then_sum` normalises each reward function in its group first, then the weighted sum over the batch. */
  aggregation?: 'sum_then_normalize' | 'normalize_then_sum';
  /** One per reward function; default all 1. */
  weights?: readonly number[];
}

export interface Advantages {
  /** [rows], f32. */
  advantages: Float32Array;
  /** Weighted sum of each row's rewards, null where every function gave null. */
  rewards: (number | null)[];
  /** Per group: over scorable rows. `signal` is false where all rewards are equal or fewer than two are scorable. */
  groups: { mean: number | null; std: number | null; signal: boolean }[];
}

export interface Moments {
  count: number;
  /** null without values. */
  mean: number | null;
  /** Sample standard deviation (ddof 1); null with fewer than two values. */
  std: number | null;
}

/** Mean and sample std of the values that are not null. Equal values have exactly that mean and a std of exactly 0. */
export function moments(values: readonly (number | null)[]): Moments {
  const present = values.filter((value) => value !== null);
  const count = present.length;
  if (count === 0) return { count, mean: null, std: null };
  const first = present[0]!;
  // Summed as offsets from the first value, so that equal rewards leave no rounding residue for 1e-4 to magnify.
  const mean = first + present.reduce((sum, value) => sum + (value - first), 0) / count;
  if (count === 1) return { count, mean, std: null };
  const squares = present.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { count, mean, std: Math.sqrt(squares / (count - 1)) };
}

/**
 * Advantages of a step's rows. `rewards[row][f]` is reward function f's value or null where it does not apply.
 * Throws PlanError where rows do not fill groups, functions and weights disagree, or a reward is not finite.
 */
export function computeAdvantages(
  rewards: readonly (readonly (number | null)[])[],
  options: AdvantageOptions,
): Advantages {
  checkRewards(rewards, options);
  const { groupSize, scale, aggregation = 'sum_then_normalize' } = options;
  const weights = options.weights ?? rewards[0]?.map(() => 1) ?? [];
  const total = rewards.map((row) => weightedSum(row, weights));
  const groupMoments = chunk(total, groupSize).map(moments);
  const groups = groupMoments.map(({ mean, std }) => ({ mean, std, signal: std !== null && std > 0 }));
  const advantages = new Float32Array(rewards.length);
  if (aggregation === 'normalize_then_sum') {
    const normalised = normaliseFunctions(rewards, groupSize).map((row) => weightedSum(row, weights));
    const batch = moments(normalised);
    normalised.forEach((value, row) => {
      if (value !== null) advantages[row] = (value - batch.mean!) / ((batch.std ?? 0) + advantageEps);
    });
    return { advantages, rewards: total, groups };
  }
  const batchStd = moments(total).std ?? 0;
  total.forEach((reward, row) => {
    const { mean, std } = groupMoments[Math.floor(row / groupSize)]!;
    if (reward === null || mean === null) return;
    const divisor = scale === 'none' ? 1 : (scale === 'group' ? (std ?? 0) : batchStd) + advantageEps;
    advantages[row] = (reward - mean) / divisor;
  });
  return { advantages, rewards: total, groups };
}

function weightedSum(row: readonly (number | null)[], weights: readonly number[]): number | null {
  if (row.every((value) => value === null)) return null;
  return row.reduce<number>((sum, value, f) => (value === null ? sum : sum + weights[f]! * value), 0);
}

function normaliseFunctions(rewards: readonly (readonly (number | null)[])[], groupSize: number) {
  return chunk(rewards, groupSize).flatMap((group) => {
    const perFunction = group[0]!.map((_, f) => moments(group.map((row) => row[f]!)));
    return group.map((row) =>
      row.map((value, f) => {
        const { mean, std } = perFunction[f]!;
        return value === null ? null : (value - mean!) / ((std ?? 0) + advantageEps);
      }),
    );
  });
}

function chunk<T>(rows: readonly T[], size: number): T[][] {
  return Array.from({ length: rows.length / size }, (_, i) => rows.slice(i * size, (i + 1) * size));
}

function checkRewards(rewards: readonly (readonly (number | null)[])[], options: AdvantageOptions): void {
  const { groupSize, weights } = options;
  const fail = (found: string, wanted: string, remedy: string) => {
    throw new PlanError('advantages', `computing advantages: ${found}; ${wanted}. ${remedy}`);
  };
  if (!(Number.isInteger(groupSize) && groupSize >= 1 && rewards.length > 0 && rewards.length % groupSize === 0))
    fail(
      `${rewards.length} rows in groups of ${groupSize}`,
      'the rows must fill whole groups',
      'Replace or drop an incomplete group as a whole.',
    );
  const functions = weights?.length ?? rewards[0]!.length;
  rewards.forEach((row, r) => {
    if (row.length !== functions || functions === 0)
      fail(
        `row ${r} has ${row.length} rewards`,
        `wanted ${functions}, one per function`,
        'Use null where none applies.',
      );
    const bad = row.find((value) => value !== null && !Number.isFinite(value));
    if (bad !== undefined)
      fail(`row ${r} has reward ${bad}`, 'rewards are finite or null', 'Give null for a row that cannot be scored.');
  });
}
