// The sentences of a report: the result, and what it can and cannot show.
// Not opinions: each follows from counts in the report. Invariant: a difference is called one only if its interval
// excludes zero, and training curves are never called a result.
import type { Comparison } from '../evaluation/compare.ts';
import { formatNumber, formatP, formatPercent, formatPoints, formatSignedPoints } from './format.ts';
import type { ReportInput } from './schema.ts';

/** Below this many discordant items the percentile interval is known to be optimistic; the exact test is then named. */
const FEW_DISCORDANT = 10;

function intervalText(comparison: Comparison): string {
  const { interval } = comparison.difference;
  if (!interval) return 'no interval: fewer than two paired items';
  return `95 % paired interval ${formatSignedPoints(interval.low)} to ${formatSignedPoints(interval.high)}`;
}

/** -1, 0, 1: the sign of the difference if its interval excludes zero. */
function direction(comparison: Comparison): -1 | 0 | 1 {
  const { interval } = comparison.difference;
  if (!interval) return 0;
  return interval.low > 0 ? 1 : interval.high < 0 ? -1 : 0;
}

/** The result in one sentence. */
export function headline(comparison: Comparison | null, steps: number): string {
  const trained = `${formatNumber(steps)} optimizer ${steps === 1 ? 'step' : 'steps'}`;
  if (!comparison) return `${trained} were run; no pair of evaluations was made, so there is no result to report.`;
  const measure = comparison.measure;
  const verb = ['fell', 'did not measurably change', 'rose'][direction(comparison) + 1]!;
  return (
    `Over ${trained}, ${measure} ${verb}: ${formatPercent(comparison.a.rate)} before, ` +
    `${formatPercent(comparison.b.rate)} after (${formatPoints(comparison.difference.difference)}; ` +
    `${intervalText(comparison)}).`
  );
}

/** What the result supports. */
export function canShow(input: ReportInput, comparison: Comparison | null): string[] {
  const { rollouts, findings } = input.audit;
  const audited =
    `That the record holds together: ${formatNumber(rollouts)} training rollouts were audited before they were ` +
    `trained on, with ${formatNumber(findings)} findings.`;
  if (!comparison) return ['How the training signals developed. They are no assessment of the policy.', audited];
  const { items, samples, wins, losses, mcnemar } = comparison;
  const claim = [
    `That ${comparison.measure} fell on items like these.`,
    'That no change could be told from chance on items like these; this is not evidence that there is none.',
    `That ${comparison.measure} rose on items like these.`,
  ][direction(comparison) + 1]!;
  return [
    `${claim} Basis: ${formatNumber(items)} paired items, ${formatNumber(samples)} samples per arm, ` +
      'same items, seeds and sampling settings.',
    `${formatNumber(wins)} items were won and ${formatNumber(losses)} lost; ` +
      `exact McNemar p ${formatP(mcnemar.pValue)}.`,
    audited,
  ];
}

/** What the result does not support. */
export function cannotShow(input: ReportInput, comparison: Comparison | null): string[] {
  const lines = [
    `How much another training seed would differ: there is one run here, with seed ${input.trainingSeed}. ` +
      'The interval covers the choice of items and not the training.',
    'Skills beyond this task: the items are synthetic and alike, so they are worth fewer independent ones than ' +
      'their number.',
    'Absence of harm: a loss that was not observed on these items is no proof that there is none elsewhere.',
    'Anything from the training curves alone: each step has its own few tasks, and reward is a training signal, ' +
      'not an assessment.',
  ];
  if (comparison && comparison.mcnemar.discordant < FEW_DISCORDANT) {
    lines.push(
      `A precise interval: only ${comparison.mcnemar.discordant} items changed, where the percentile interval is ` +
        'optimistic. The exact p-value is the safer reading.',
    );
  }
  if (comparison && comparison.leftOut > 0) {
    lines.push(
      `${formatNumber(comparison.leftOut)} samples that a failed service lost: they are left out of both arms.`,
    );
  }
  if (input.device.software) lines.push('Speed on a GPU: the run used a software adapter.');
  lines.push(`Results of another kernel family than ${input.device.family}: families are qualified and judged apart.`);
  return [...lines, ...input.task.facts];
}
