// The tables of a report as HTML. Not figures, not prose. Invariant: every cell passes through `escapeHtml`.
import type { Both, Comparison } from '../evaluation/compare.ts';
import {
  escapeHtml,
  formatChange,
  formatNumber,
  formatPercent,
  formatPoints,
  formatSeconds,
  formatSignedPoints,
} from './format.ts';
import type { ReportJson } from './schema.ts';

/** A table: first column row headers, the others right-aligned; `left` names columns of text. */
export function table(options: {
  caption: string;
  head: string[];
  rows: string[][];
  left?: number[];
  wide?: boolean;
}): string {
  const side = (column: number) => (options.left?.includes(column) ? ' class="left"' : '');
  const head = options.head.map((cell, i) => `<th scope="col"${side(i)}>${escapeHtml(cell)}</th>`).join('');
  const content = (cell: string) => (/^[0-9a-f]{64}$/.test(cell) ? `<code>${cell}</code>` : escapeHtml(cell));
  const body = options.rows
    .map(([first, ...rest]) => {
      const cells = rest.map((cell, i) => `<td${side(i + 1)}>${content(cell)}</td>`).join('');
      return `<tr><th scope="row">${escapeHtml(first ?? '')}</th>${cells}</tr>`;
    })
    .join('\n');
  const caption = escapeHtml(options.caption);
  // A scrolling region must be reachable by keyboard, so it takes the focus.
  return (
    `<div class="scroll" tabindex="0" role="region" aria-label="${caption}">` +
    `<table${options.wide ? ' class="wide"' : ''}>` +
    `<caption>${caption}</caption><thead><tr>${head}</tr></thead><tbody>\n${body}\n</tbody></table></div>`
  );
}

const count = (label: string, both: Both): string[] => [
  label,
  formatNumber(both.a),
  formatNumber(both.b),
  formatChange(both.change),
];

/** What the two policies of a comparison are called. */
export type ArmNames = readonly [a: string, b: string];
export const BEFORE_AFTER: ArmNames = ['before', 'after'];

/**
 * The paired result, over all seeds and seed by seed; `verdict` adds a column of its own, null standing for all seeds.
 * The interval and the test are over items with all their seeds, so a single seed has none.
 */
export function pairedTable(
  comparison: Comparison,
  names: ArmNames = BEFORE_AFTER,
  verdict?: { head: string; of: (seed: number | null) => string },
): string {
  const { a, b, samples, wins, losses, difference, mcnemar, perSeed } = comparison;
  const { interval } = difference;
  const range = interval ? `${formatSignedPoints(interval.low)} to ${formatSignedPoints(interval.high)}` : 'none';
  const cells = (numbers: readonly number[]) => numbers.map(formatNumber);
  const extra = (seed: number | null) => (verdict ? [verdict.of(seed)] : []);
  const seeds = perSeed.map((s) => [
    `seed ${s.seed}`,
    ...cells([s.samples, s.a, s.b, s.wins, s.losses]),
    s.samples === 0 ? 'none' : formatPoints((s.b - s.a) / s.samples),
    '',
    '',
    ...extra(s.seed),
  ]);
  return table({
    caption: 'Paired by item: correct samples of each policy, items won and lost, difference in percentage points',
    head: [
      '',
      'samples',
      ...names,
      'won',
      'lost',
      'difference',
      '95 % interval (points)',
      'exact McNemar p',
      ...(verdict ? [verdict.head] : []),
    ],
    rows: [
      [
        'all seeds',
        ...cells([samples, a.correct, b.correct, wins, losses]),
        formatPoints(difference.difference),
        range,
        formatNumber(Number(mcnemar.pValue.toPrecision(3))),
        ...extra(null),
      ],
      ...(perSeed.length > 1 ? seeds : []),
    ],
    wide: true,
  });
}

/** Outcome classes, format figures and costs of both arms. */
export function comparisonTables(comparison: Comparison, names: ArmNames = BEFORE_AFTER): string {
  const { a, b, outcomes, accuracyGivenAnswer: given } = comparison;
  const share = (value: number | null) => (value === null ? 'none' : formatPercent(value));
  const both = given.a !== null && given.b !== null ? formatPoints(given.b - given.a) : 'none';
  const head = ['', ...names, 'change'];
  const outcomeTable = table({
    caption: `Every sample in one class (${formatNumber(comparison.samples + comparison.leftOut)} per arm)`,
    head,
    rows: [
      [comparison.measure, formatPercent(a.rate), formatPercent(b.rate), formatPoints(b.rate - a.rate)],
      count('correct', outcomes.correct),
      count('wrong', outcomes.wrong),
      count('no answer', outcomes.no_answer),
      count('contradictory', outcomes.contradictory),
      count('truncated', outcomes.truncated),
      count('infrastructure (never scored)', outcomes.infrastructure),
      ['accuracy given an answer', share(given.a), share(given.b), both],
    ],
    wide: true,
  });
  const costTable = table({
    caption: 'Reported apart from the score',
    head,
    rows: [
      count('capped (token limit)', comparison.capped),
      count('malformed answers', comparison.malformedAnswers),
      count('ambiguous numbers', comparison.ambiguousAnswers),
      count('tool errors', comparison.toolErrors),
      count('invalid dispatches', comparison.invalidDispatches),
      count('tokens sampled', comparison.sampledTokens),
      count('tokens discarded', comparison.discardedTokens),
      [
        'run time, summed over samples',
        formatSeconds(comparison.seconds.a),
        formatSeconds(comparison.seconds.b),
        `${comparison.seconds.change < 0 ? '\u2212' : '+'}${formatSeconds(Math.abs(comparison.seconds.change))}`,
      ],
    ],
    wide: true,
  });
  return `<div class="figures tables">${outcomeTable}${costTable}</div>`;
}

/** Method of the interval and of the test, as one row each. */
export function methodTable(comparison: Comparison): string {
  const { difference, mcnemar } = comparison;
  const { interval } = difference;
  return table({
    caption: 'How the interval and the test were made',
    head: ['', 'value'],
    left: [1],
    rows: [
      ['difference', formatPoints(difference.difference)],
      [
        '95 % interval',
        interval
          ? `${formatSignedPoints(interval.low)} to ${formatSignedPoints(interval.high)} points`
          : 'none: fewer than two items',
      ],
      ['method', `${difference.method}; all seeds of an item together, one index vector a draw for both arms`],
      ['resamples, seed', `${formatNumber(difference.resamples)}, ${difference.seed}`],
      ['items, samples per arm', `${formatNumber(difference.items)}, ${formatNumber(difference.samples)}`],
      [
        'standard error (bootstrap)',
        difference.standardError === null ? 'none' : formatPoints(difference.standardError).replace('+', ''),
      ],
      ['items that changed', `${mcnemar.discordant}: ${mcnemar.wins} won, ${mcnemar.losses} lost`],
      ['exact McNemar p', formatNumber(Number(mcnemar.pValue.toPrecision(3)))],
    ],
  });
}

/** Every recorded metric of every step, with the journal entry that holds it. */
export function stepTable(report: ReportJson): string {
  const names = [...new Set(report.steps.flatMap((step) => Object.keys(step.metrics)))].sort();
  const journaled = report.steps.some((step) => step.journal);
  return table({
    caption: 'Metrics by step, under their TRL names',
    head: ['step', ...names, ...(journaled ? ['journal entry'] : [])],
    rows: report.steps.map(({ step, metrics, journal }) => [
      String(step),
      ...names.map((name) => (metrics[name] === undefined ? '' : formatNumber(metrics[name]))),
      ...(journaled ? [journal ? `${journal.index} (${journal.hash.slice(0, 12)})` : ''] : []),
    ]),
  });
}
