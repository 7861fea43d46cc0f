// The result sections of an experiment's HTML report: selection on DEV, paired comparisons, evaluations, caps.
// Not the document (report-html.ts). Invariant: a section whose stage was not passed says so.
import type { Comparison } from '../evaluation/compare.ts';
import { figureHtml } from '../report/figure-html.ts';
import { differenceFigure, type Figure, ratesFigure } from '../report/figures.ts';
import {
  escapeHtml,
  formatNumber,
  formatPercent,
  formatPoints,
  formatSeconds,
  formatSignedPoints,
} from '../report/format.ts';
import { drawSteps } from '../report/plots-node.ts';
import type { ReportJson } from '../report/schema.ts';
import { comparisonTables, methodTable, pairedTable, table } from '../report/tables.ts';
import type { ExperimentReport, TimelessComparison, UnitReport } from './report.ts';
import { muted, paragraph, policyName } from './report-parts.ts';
import type { RetentionVerdict } from './retention.ts';

const share = (n: number, of: number) => `${formatNumber(n)} of ${formatNumber(of)}`;
const shareOf = (n: number, of: number) => (of === 0 ? share(n, of) : `${share(n, of)} (${formatPercent(n / of)})`);

export function selectionSection({ content }: ExperimentReport): string {
  const { selection, recommendation } = content;
  if (!selection) return `<h2 id="selection">Selection on DEV</h2>${muted('Not made yet.')}`;
  const row = (point: (typeof selection.points)[number] | typeof selection.baseline) => {
    const ranked = 'eligible' in point ? point : null;
    return [
      policyName(point.step),
      shareOf(point.strict, point.agentSamples),
      shareOf(point.mathCorrect, point.mathSamples),
      formatNumber(point.toolErrors),
      ranked ? (ranked.eligible ? 'yes' : 'no') : '',
      ranked?.rank ? String(ranked.rank) : '',
      ranked ? ranked.reasons.join('; ') : '',
    ];
  };
  const points = [selection.baseline, ...selection.points];
  const curve = (value: (point: (typeof points)[number]) => number) =>
    points.map((point) => ({ step: point.step, value: value(point) }));
  const series = [
    { label: 'strict success', colour: 'var(--series-2)', points: curve((p) => p.strict / p.agentSamples) },
    { label: 'math', colour: 'var(--series-1)', dash: '7 4', points: curve((p) => p.mathCorrect / p.mathSamples) },
  ];
  const rates: Figure = {
    id: 'dev',
    title: 'DEV points',
    caption: 'Strict agent success and math correctness at the preregistered steps; step 0 is the baseline.',
    svg: drawSteps({
      title: 'DEV points',
      yLabel: 'share of samples (%)',
      series,
      window: 1,
      percent: true,
      yDomain: [0, 1],
    }),
    legend: series.map(({ points: _points, ...entry }) => entry),
  };
  const errors: Figure = {
    id: 'dev-errors',
    title: 'Tool errors on DEV',
    caption: 'Errors that the environment reported over all agent episodes of a step; the second key of the ranking.',
    svg: drawSteps({
      title: 'Tool errors on DEV',
      yLabel: 'tool errors (count)',
      series: [{ label: 'tool errors', colour: 'var(--series-3)', points: curve((p) => p.toolErrors) }],
      window: 1,
      yDomain: [0, 4],
    }),
    legend: [],
  };
  const result =
    selection.selected === null
      ? `No step is eligible: step ${selection.assessed} is assessed as a diagnostic and cannot be promoted.`
      : `Selected: step ${selection.selected}.`;
  const recommended = recommendation
    ? paragraph(`Recommended in the end: ${recommendation.recommended}; ${recommendation.reason}.`)
    : '';
  return (
    `<h2 id="selection">Selection on DEV</h2>${paragraph(result)}${recommended}` +
    `${muted(`Rule ${selection.rule}: ${content.selectionRule}`)}` +
    `<div class="figures">${figureHtml(rates, 'selection')}${figureHtml(errors, 'selection')}</div>` +
    table({
      caption: 'DEV points and what the rule made of them',
      head: ['policy', 'strict', 'math', 'tool errors', 'eligible', 'rank', 'why not'],
      left: [4, 6],
      rows: points.map(row),
      wide: true,
    })
  );
}

function verdictHtml(verdict: RetentionVerdict | undefined): string {
  if (!verdict) return '';
  const { met, overall } = verdict;
  const empty = overall.baseline === 0 ? ' The baseline answered none correctly, so there was nothing to lose.' : '';
  return paragraph(
    met
      ? `No loss was observed, overall and at each seed.${empty} That is no proof that there is none.`
      : 'A loss was observed: the requirement is not met.',
  );
}

/** The requirement (at least as many correct answers as the baseline), overall and seed by seed. */
function requirement({ overall, perSeed }: RetentionVerdict) {
  const of = (seed: number | null) => {
    const one = seed === null ? overall : perSeed.find((each) => each.seed === seed);
    return one ? (one.met ? 'met' : 'not met') : '';
  };
  return { head: 'no observed loss', of };
}

/** `training` is the run as the report module's figures take it, with a comparison in it. */
export function comparisonSection(
  report: ExperimentReport,
  id: 'final' | 'retention',
  title: string,
  comparison: TimelessComparison | null,
  training: (comparison: Comparison) => ReportJson,
): string {
  if (!comparison) return `<h2 id="${id}">${title}</h2>${muted('Not made yet.')}`;
  const { baseline = 0, assessed = 0 } = report.record.comparisonSeconds[id] ?? {};
  const timed: Comparison = { ...comparison, seconds: { a: baseline, b: assessed, change: assessed - baseline } };
  const shown = training(timed);
  const { selection, retention } = report.content;
  const step = selection?.assessed ?? 0;
  const names = [policyName(0), policyName(step)] as const;
  const diagnostic =
    selection?.assessment === 'diagnostic' ? muted(`Step ${step} is a diagnostic: nothing here can promote it.`) : '';
  const verdict = id === 'retention' ? retention?.verdict : undefined;
  const notes = comparison.notes.length > 0 ? muted(comparison.notes.join(' ')) : '';
  return (
    `<h2 id="${id}">${title}</h2>${diagnostic}${verdictHtml(verdict)}` +
    `<div class="figures">${figureHtml(ratesFigure(shown, names), id)}${figureHtml(differenceFigure(shown, names), id)}` +
    `</div>${notes}${pairedTable(timed, names, verdict && requirement(verdict))}${comparisonTables(timed, names)}` +
    `<details><summary>Method of the interval and the test</summary>${methodTable(timed)}</details>`
  );
}

/** Sets of rollouts as a reader sees them, in the order of the protocol; a name stays on one line. */
const SET_NAMES = {
  training: 'training',
  'dev-agent': 'DEV\u00A0agent',
  'dev-math': 'DEV\u00A0math',
  'final-agent': 'final\u00A0agent',
  'retention-math': 'retention\u00A0math',
} as const;
const SETS = Object.keys(SET_NAMES);
const CLASSES = {
  environment: 'reported by the environment',
  unknown_tool: 'unknown tool',
  invalid_json: 'invalid JSON',
  missing_arguments: 'missing arguments',
  unclosed: 'unclosed call',
  dropped: 'result dropped at the cap',
} as const;

/** Units by suite, policy and seed. */
function ordered(units: readonly UnitReport[]): UnitReport[] {
  const place = ({ unit }: UnitReport) => SETS.indexOf(unit.suite);
  return [...units].sort((a, b) => place(a) - place(b) || a.unit.step - b.unit.step || a.unit.seed - b.unit.seed);
}

/** One row an agent suite and policy, seeds together. */
function errorTable(units: readonly UnitReport[]): string {
  const rows = new Map<string, Record<string, number>>();
  for (const { unit, toolErrorClasses } of units) {
    if (!unit.suite.endsWith('agent')) continue;
    const key = `${SET_NAMES[unit.suite]}, ${policyName(unit.step)}`;
    const sum = rows.get(key) ?? {};
    for (const name of Object.keys(CLASSES)) sum[name] = (sum[name] ?? 0) + (toolErrorClasses[name] ?? 0);
    rows.set(key, sum);
  }
  if (rows.size === 0) return '';
  return table({
    caption: 'Tool errors by class: calls, all seeds together (a call may be in two classes)',
    head: ['suite and policy', ...Object.values(CLASSES)],
    rows: [...rows].map(([key, sum]) => [key, ...Object.keys(CLASSES).map((name) => formatNumber(sum[name] ?? 0))]),
    wide: true,
  });
}

/** What each set may generate, and how often it was cut off there. */
function capTable({ content }: ExperimentReport): string {
  const { caps, units, training } = content;
  const cut = (set: string, baseline: boolean) => {
    const of = units.filter(({ unit }) => unit.suite === set && (unit.step === 0) === baseline);
    if (of.length === 0) return '';
    const sum = (value: (unit: UnitReport) => number) => of.reduce((total, unit) => total + value(unit), 0);
    return share(
      sum(({ totals }) => totals.capped),
      sum(({ totals }) => totals.samples),
    );
  };
  const trained = training ? share(training.tokens.capped, training.audit.rollouts) : '';
  return table({
    caption:
      `Caps: tokens after the prompt, observations and framing included. The recipe asks for ` +
      `${formatNumber(caps.asked)}; the model has ${formatNumber(caps.positions)} positions.`,
    head: [
      'set',
      'longest prompt (tokens)',
      'its item',
      'cap (tokens)',
      '',
      'cut off: baseline',
      'cut off: trained steps',
    ],
    left: [2, 4],
    rows: caps.sets.map(({ set, longestPrompt, longestItem, cap }) => [
      SET_NAMES[set],
      formatNumber(longestPrompt),
      longestItem,
      formatNumber(cap),
      cap < caps.asked ? 'clamped to the positions' : 'as asked',
      set === 'training' ? '' : cut(set, true),
      set === 'training' ? trained : cut(set, false),
    ]),
    wide: true,
  });
}

/** Tokens that were drawn and are in no rollout; older records have no count of them. */
export const droppedText = (tokens: number | undefined) =>
  tokens === undefined ? 'not counted' : formatNumber(tokens);

export function evaluationsSection(report: ExperimentReport): string {
  const { content, record } = report;
  const head = '<h2 id="evaluations">Evaluations, caps and tool errors</h2>';
  if (content.units.length === 0) return `${head}${capTable(report)}`;
  const units = ordered(content.units);
  const rows = units.map(({ unit, totals }) => [
    SET_NAMES[unit.suite],
    policyName(unit.step),
    String(unit.seed),
    shareOf(totals.correct, totals.samples),
    formatNumber(totals.byOutcome.no_answer + totals.byOutcome.contradictory),
    formatNumber(totals.capped),
    formatNumber(totals.toolErrors),
    formatNumber(totals.invalidDispatches),
    formatNumber(totals.sampledTokens),
    formatNumber(totals.discardedTokens),
    droppedText(record.droppedTokens.units[unit.name]),
    formatNumber(totals.sampledTokens + totals.discardedTokens + (record.droppedTokens.units[unit.name] ?? 0)),
    formatSeconds(record.unitSeconds[unit.name] ?? 0),
  ]);
  const evaluations = table({
    caption:
      'One row a suite, policy and seed. Malformed: no answer, or several that contradict each other. Tool errors are ' +
      "the environment's; invalid calls were never dispatched. Tokens drawn: retained, discarded past the cap, dropped " +
      '(decoded ahead of a stop, as family matrix does, or in an attempt that a service failed), and physical, their sum.',
    head: [
      'suite',
      'policy',
      'seed',
      'correct',
      'malformed',
      'capped',
      'tool errors',
      'invalid calls',
      'retained',
      'discarded',
      'dropped',
      'physical',
      'wall time',
    ],
    left: [1],
    rows,
    wide: true,
  });
  return `${head}${evaluations}${errorTable(units)}${capTable(report)}`;
}

/** The result at a glance. */
export function tiles({ content, record }: ExperimentReport): string {
  const { final, retention, training, selection, device } = content;
  const assessed = selection ? policyName(selection.assessed) : '';
  const entries: [string, string, string][] = [];
  if (final) {
    const { interval } = final.difference;
    const bounds = interval && `${formatSignedPoints(interval.low)} to ${formatSignedPoints(interval.high)} points`;
    entries.push(
      [
        'strict success, final',
        `${formatPercent(final.a.rate)} → ${formatPercent(final.b.rate)}`,
        `baseline → ${assessed}; ${formatNumber(final.items)} items, ${formatNumber(final.samples)} samples each`,
      ],
      [
        'paired difference',
        formatPoints(final.difference.difference),
        bounds ? `95\u00A0%: ${bounds}` : 'no interval: fewer than two items',
      ],
    );
  }
  if (retention) {
    const { overall, met } = retention.verdict;
    const samples = formatNumber(retention.comparison.samples);
    entries.push([
      'retention',
      overall.baseline === 0 ? 'nothing to lose' : met ? 'no loss observed' : 'loss observed',
      `${formatNumber(overall.baseline)} → ${formatNumber(overall.candidate)} correct of ${samples}`,
    ]);
  }
  if (training) {
    const { rollouts, findings } = training.audit;
    entries.push([
      'training',
      `${formatNumber(training.steps.length)} steps`,
      `${formatNumber(rollouts)} rollouts audited, ${formatNumber(findings)} findings`,
    ]);
  }
  const { chargedSeconds, wallSeconds } = record.budget;
  const attempts = record.attempts.length;
  entries.push([
    'budget',
    formatSeconds(chargedSeconds),
    `of ${formatSeconds(wallSeconds)}, ${attempts} attempt${attempts === 1 ? '' : 's'}`,
  ]);
  if (device['description']) entries.push(['device', device['family'] ?? '', device['description']]);
  const cells = entries.map(
    ([term, value, detail]) =>
      `<div><dt>${escapeHtml(term)}</dt><dd>${escapeHtml(value)}<small>${escapeHtml(detail)}</small></dd></div>`,
  );
  return `<dl class="tiles">${cells.join('')}</dl>`;
}
