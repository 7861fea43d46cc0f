// Compares two evaluations of the same samples, item by item: a is the baseline, b the candidate.
// Not a verdict: it reports the interval, the exact test and every outcome class, and leaves the decision to the plan.
// Invariant: samples that a broken service lost in either arm are left out of both and counted, never scored as wrong.
import { EvaluationError } from '../lib/errors.ts';
import { incompleteNote, OUTCOMES, type Outcome } from './outcomes.ts';
import type { EvaluationFile, EvaluationItem } from './results.ts';
import {
  type BootstrapResult,
  exactMcNemar,
  type Interval,
  type McNemarResult,
  type PairedSample,
  pairedBootstrap,
  wilsonInterval,
} from './statistics.ts';

/** One figure of both arms. `change` is b minus a. */
export interface Both {
  a: number;
  b: number;
  change: number;
}

interface ArmRate {
  correct: number;
  samples: number;
  rate: number;
  /** Wilson, 95 %, over samples; too narrow where an item has several seeds, see `clustered`. */
  wilson: Interval | null;
}

export interface Comparison {
  schema: 'shaderl.comparison/1';
  suite: 'agent' | 'math';
  measure: 'strict success' | 'correct answers';
  items: number;
  samples: number;
  seeds: number[];
  /** Samples left out because the service failed in a, in b, or in both. */
  leftOut: number;
  a: ArmRate;
  b: ArmRate;
  /** Items whose mean over seeds is higher in b, lower in b, equal. */
  wins: number;
  losses: number;
  ties: number;
  difference: BootstrapResult;
  /** At item level: with several seeds, the exact sign test of items that changed. */
  mcnemar: McNemarResult;
  perSeed: { seed: number; samples: number; a: number; b: number; wins: number; losses: number }[];
  outcomes: Record<Outcome, Both>;
  /** Share of correct ones among samples with one readable answer (correct or wrong); null without any. */
  accuracyGivenAnswer: { a: number | null; b: number | null };
  capped: Both;
  /** Replies without one readable answer: no answer or contradictory. */
  malformedAnswers: Both;
  /** Numbers such as `1,234` that were read by the fixed rule. */
  ambiguousAnswers: Both;
  toolErrors: Both;
  invalidDispatches: Both;
  sampledTokens: Both;
  discardedTokens: Both;
  /** Summed over samples. */
  seconds: Both;
  /** Differences between the two files that do not forbid the comparison but should be known. */
  notes: string[];
}

const keyOf = (item: EvaluationItem) => JSON.stringify([item.id, item.seed]);
const named = (item: EvaluationItem) => `"${item.id}" with seed ${item.seed}`;

function refuse(what: string, a: unknown, b: unknown, files: [string, string]): never {
  throw new EvaluationError(
    'not-comparable',
    `comparing ${files[0]} with ${files[1]}: ${what} differs: ${JSON.stringify(a)} against ${JSON.stringify(b)}; ` +
      'wanted the same items, seeds, suite and sampling settings. ' +
      'Evaluate one of the two again with the settings of the other.',
  );
}

/** Throws EvaluationError naming the first difference that makes two evaluations no pair. */
function requireComparable(a: EvaluationFile, b: EvaluationFile, files: [string, string]): void {
  for (const key of ['suite', 'family', 'dataSha256'] as const)
    if (a[key] !== b[key]) refuse(key, a[key], b[key], files);
  const names = Object.keys(a.sampling) as (keyof typeof a.sampling)[];
  for (const key of names) {
    if (a.sampling[key] !== b.sampling[key]) refuse(`sampling.${key}`, a.sampling[key], b.sampling[key], files);
  }
  const [seedsA, seedsB] = [[...a.seeds].sort((x, y) => x - y), [...b.seeds].sort((x, y) => x - y)];
  if (JSON.stringify(seedsA) !== JSON.stringify(seedsB)) refuse('seeds', a.seeds, b.seeds, files);
  for (const [one, other, names] of [
    [a, b, files],
    [b, a, [files[1], files[0]]],
  ] as const) {
    const keys = new Set(other.items.map(keyOf));
    const missing = one.items.find((item) => !keys.has(keyOf(item)));
    if (missing) {
      throw new EvaluationError(
        'not-comparable',
        `comparing ${files[0]} with ${files[1]}: item ${named(missing)} is in ${names[0]} and not in ${names[1]}; ` +
          'wanted the same items and seeds in both. Evaluate one of the two again on the items of the other.',
      );
    }
  }
}

const score = (suite: EvaluationFile['suite'], item: EvaluationItem): number =>
  (suite === 'agent' ? item.strict === true : item.outcome === 'correct') ? 1 : 0;

function rateOf(scores: readonly number[]): ArmRate {
  const correct = scores.reduce((n, s) => n + s, 0);
  const samples = scores.length;
  return {
    correct,
    samples,
    rate: samples === 0 ? Number.NaN : correct / samples,
    wilson: wilsonInterval(correct, samples),
  };
}

/**
 * Compares b (candidate) with a (baseline). `files` are the names used in errors.
 * Throws EvaluationError if the two are not evaluations of the same samples under the same settings, or hold no pair.
 */
export function compareEvaluations(
  a: EvaluationFile,
  b: EvaluationFile,
  options: { seed?: number; resamples?: number; files?: [string, string] } = {},
): Comparison {
  const files = options.files ?? ['a', 'b'];
  requireComparable(a, b, files);
  const inB = new Map(b.items.map((item) => [keyOf(item), item]));
  const all = a.items.map((item) => [item, inB.get(keyOf(item))!] as const);
  const pairs = all.filter((pair) => pair.every((item) => item.outcome !== 'infrastructure'));
  if (pairs.length === 0) {
    throw new EvaluationError(
      'no-pairs',
      `comparing ${files[0]} with ${files[1]}: found ${all.length} samples, of which none was scored in both; ` +
        'wanted at least one. Evaluate again with a working environment service.',
    );
  }
  const samples: (PairedSample & { seed: number })[] = pairs.map(([x, y]) => ({
    cluster: x.id,
    seed: x.seed,
    a: score(a.suite, x),
    b: score(a.suite, y),
  }));

  const incomplete = incompleteNote(all.length - pairs.length, all.length);
  const byItem = new Map<string, number>();
  for (const s of samples) byItem.set(s.cluster, (byItem.get(s.cluster) ?? 0) + (s.b - s.a));
  const itemDifferences = [...byItem.values()];
  const wins = itemDifferences.filter((d) => d > 0).length;
  const losses = itemDifferences.filter((d) => d < 0).length;

  const both = (measure: (item: EvaluationItem) => number): Both => {
    const [left, right] = [0, 1].map((arm) => all.reduce((n, pair) => n + measure(pair[arm]!), 0));
    return { a: left!, b: right!, change: right! - left! };
  };
  const is = (outcome: Outcome) => both((item) => (item.outcome === outcome ? 1 : 0));
  const outcomes = Object.fromEntries(OUTCOMES.map((o) => [o, is(o)])) as Record<Outcome, Both>;
  const givenAnswer = (arm: 'a' | 'b') => {
    const answered = outcomes.correct[arm] + outcomes.wrong[arm];
    return answered === 0 ? null : outcomes.correct[arm] / answered;
  };
  return {
    schema: 'shaderl.comparison/1',
    suite: a.suite,
    measure: a.suite === 'agent' ? 'strict success' : 'correct answers',
    items: byItem.size,
    samples: samples.length,
    seeds: [...a.seeds],
    leftOut: all.length - pairs.length,
    a: rateOf(samples.map((s) => s.a)),
    b: rateOf(samples.map((s) => s.b)),
    wins,
    losses,
    ties: byItem.size - wins - losses,
    difference: pairedBootstrap(samples, {
      seed: options.seed ?? 0,
      ...(options.resamples === undefined ? {} : { resamples: options.resamples }),
    }),
    mcnemar: exactMcNemar(wins, losses),
    perSeed: a.seeds.map((seed) => perSeed(seed, samples)),
    outcomes,
    accuracyGivenAnswer: { a: givenAnswer('a'), b: givenAnswer('b') },
    capped: both((item) => (item.capped ? 1 : 0)),
    malformedAnswers: both((item) => (item.outcome === 'no_answer' || item.outcome === 'contradictory' ? 1 : 0)),
    ambiguousAnswers: both((item) => (item.ambiguous === true ? 1 : 0)),
    toolErrors: both((item) => item.toolErrors ?? 0),
    invalidDispatches: both((item) => item.invalidDispatches ?? 0),
    sampledTokens: both((item) => item.sampledTokens),
    discardedTokens: both((item) => item.discardedTokens),
    seconds: both((item) => item.seconds),
    notes: [...(incomplete === null ? [] : [incomplete]), ...notesOn(a, b)],
  };
}

function perSeed(seed: number, samples: readonly (PairedSample & { seed: number })[]): Comparison['perSeed'][number] {
  const own = samples.filter((s) => s.seed === seed);
  return {
    seed,
    samples: own.length,
    a: own.reduce((n, s) => n + s.a, 0),
    b: own.reduce((n, s) => n + s.b, 0),
    wins: own.filter((s) => s.b > s.a).length,
    losses: own.filter((s) => s.b < s.a).length,
  };
}

function notesOn(a: EvaluationFile, b: EvaluationFile): string[] {
  const notes: string[] = [];
  if (a.device !== b.device) notes.push(`The two ran on different devices: ${a.device} and ${b.device}.`);
  if (a.modelTreeSha256 !== b.modelTreeSha256) notes.push('The two have different base models.');
  if (a.modelTreeSha256 === b.modelTreeSha256 && a.adapterSha256 === b.adapterSha256) {
    notes.push('The two have the same weights.');
  }
  if (a.seeds.length > 1)
    notes.push('Wilson intervals treat the seeds of an item as independent; the paired one does not.');
  return notes;
}
