// Renders an experiment's report as one HTML file that needs nothing else: style and figures inline, no script.
// Not the content (report.ts). Invariant: text from the run is escaped; figures and tables are the report module's own.
import type { Comparison } from '../evaluation/compare.ts';
import {
  differenceFigure,
  type Figure,
  type LegendEntry,
  learningFigure,
  ratesFigure,
  trainingFigures,
} from '../report/figures.ts';
import { escapeHtml, formatNumber, formatPercent, formatSeconds } from '../report/format.ts';
import { drawSteps } from '../report/plots-node.ts';
import type { ReportJson } from '../report/schema.ts';
import { REPORT_STYLE } from '../report/style.ts';
import { comparisonTables, methodTable, stepTable, table } from '../report/tables.ts';
import type { ExperimentReport, TimelessComparison } from './report.ts';

function legendHtml(entries: readonly LegendEntry[]): string {
  const items = entries.map(({ label, colour, dash, area }) => {
    const pattern = dash ? ` stroke-dasharray="${dash}"` : '';
    const mark = area
      ? `<rect width="26" height="10" fill="${colour}" fill-opacity="0.8"/>`
      : `<line x1="0" y1="5" x2="26" y2="5" stroke="${colour}" stroke-width="2.5"${pattern}/>`;
    return `<li><svg aria-hidden="true" viewBox="0 0 26 10">${mark}</svg>${escapeHtml(label)}</li>`;
  });
  return items.length === 0 ? '' : `<ul class="legend">${items.join('')}</ul>`;
}

/** A figure; `section` keeps the ids of two comparisons apart. */
function figureHtml(figure: Figure | null, section: string): string {
  if (!figure) return '';
  return (
    '<figure ' +
    `id="${section}-${figure.id}"><h3>${escapeHtml(figure.title)}</h3>${legendHtml(figure.legend)}${figure.svg}` +
    `<figcaption>${escapeHtml(figure.caption)}</figcaption></figure>`
  );
}

const list = (lines: readonly string[]) => `<ul>${lines.map((line) => `<li>${escapeHtml(line)}</li>`).join('')}</ul>`;
const none = (text: string) => `<p class="muted">${escapeHtml(text)}</p>`;

/** The training as the report module's figures take it. */
function trainingReport({ content, record }: ExperimentReport, comparison: Comparison | null): ReportJson {
  const times = new Map(record.stepSeconds.map(({ step, metrics }) => [step, metrics]));
  const lines = new Map(record.evidence.map((one) => [one.what, one]));
  return {
    schema: 'shaderl.report/1',
    release_eligible: false,
    title: content.recipe,
    task: { description: '', facts: [] },
    headline: content.headline,
    canShow: content.canShow,
    cannotShow: content.cannotShow,
    config: {},
    device: { name: '', software: false, family: 'portable', facts: [] },
    trainingSeed: 0,
    seconds: 0,
    steps: (content.training?.steps ?? []).map(({ step, metrics }) => {
      const line = lines.get(`training step ${step}`);
      const journal = line ? { journal: { index: line.line - 1, hash: line.sha256 } } : {};
      return { step, metrics: { ...metrics, ...times.get(step) }, ...journal };
    }),
    before: null,
    after: null,
    comparison,
    audit: { rollouts: 0, sampledTokens: 0, findings: 0, points: [] },
    checkpoints: [],
    rollouts: [],
  };
}

function selectionSection({ content }: ExperimentReport): string {
  const { selection } = content;
  if (!selection) return `<h2 id="selection">Selection on DEV</h2>${none('Not made yet.')}`;
  const share = (n: number, of: number) => `${formatNumber(n)} of ${formatNumber(of)}`;
  const row = (point: (typeof selection.points)[number] | typeof selection.baseline) => {
    const ranked = 'eligible' in point ? point : null;
    return [
      point.step === 0 ? 'baseline' : `step ${point.step}`,
      share(point.strict, point.agentSamples),
      share(point.mathCorrect, point.mathSamples),
      formatNumber(point.toolErrors),
      ranked ? (ranked.rank === null ? 'not eligible' : `rank ${ranked.rank}`) : '',
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
  const figure: Figure = {
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
  const result =
    selection.selected === null
      ? `No step is eligible: step ${selection.assessed} is assessed as a diagnostic and cannot be promoted.`
      : `Selected: step ${selection.selected}.`;
  return (
    `<h2 id="selection">Selection on DEV</h2><p>${escapeHtml(result)}</p><div ` +
    `class="figures">${figureHtml(figure, 'selection')}</div>` +
    table({
      caption: `Rule ${selection.rule}`,
      head: ['policy', 'strict', 'math', 'tool errors', 'rank', 'why not'],
      left: [4, 5],
      rows: points.map(row),
    })
  );
}

function comparisonSection(
  report: ExperimentReport,
  id: 'final' | 'retention',
  title: string,
  comparison: TimelessComparison | null,
): string {
  if (!comparison) return `<h2 id="${id}">${title}</h2>${none('Not made yet.')}`;
  const { baseline = 0, assessed = 0 } = report.record.comparisonSeconds[id] ?? {};
  const timed: Comparison = { ...comparison, seconds: { a: baseline, b: assessed, change: assessed - baseline } };
  const shown = trainingReport(report, timed);
  const verdict = id === 'retention' ? report.content.retention?.verdict : undefined;
  const kept = verdict?.met
    ? '<p>No loss was observed, overall and at each seed.</p>'
    : verdict
      ? '<p>A loss was observed: the requirement is not met.</p>'
      : '';
  const notes = comparison.notes.length > 0 ? none(comparison.notes.join(' ')) : '';
  return (
    `<h2 id="${id}">${title}</h2>${kept}` +
    none(`“Before” is the baseline, “after” is step ${report.content.selection?.assessed ?? ''}.`) +
    '<div ' +
    `class="figures">${figureHtml(ratesFigure(shown), id)}${figureHtml(differenceFigure(shown), id)}</div>${notes}` +
    `${comparisonTables(timed)}<details><summary>Method of the interval and the ` +
    `test</summary>${methodTable(timed)}</details>`
  );
}

function trainingSection(report: ExperimentReport): string {
  const { training } = report.content;
  if (!training) return `<h2 id="training">Training</h2>${none('Not begun yet.')}`;
  const shown = trainingReport(report, null);
  const { figures, absent } = trainingFigures(shown);
  const { tokens, audit } = training;
  const facts = table({
    caption: 'Training in counts',
    head: ['', 'value'],
    rows: [
      ['steps', formatNumber(training.steps.length)],
      ['rollouts audited, findings', `${formatNumber(audit.rollouts)}, ${formatNumber(audit.findings)}`],
      ['tokens retained (prompts and observations included)', formatNumber(tokens.retained)],
      ['tokens sampled and retained', formatNumber(tokens.sampled)],
      ['tokens sampled in all (physical)', formatNumber(tokens.sampled + tokens.discarded)],
      ['tokens sampled and discarded past the cap', formatNumber(tokens.discarded)],
      ['sealed checkpoints', training.checkpoints.join(', ')],
    ],
  });
  return (
    `<h2 id="training">Training</h2><div class="figures">${figureHtml(learningFigure(shown, 250), 'training')}` +
    `${figures.map((figure) => figureHtml(figure, 'training')).join('\n')}</div>` +
    `${absent.length > 0 ? none(`Not recorded in this run: ${absent.join(', ')}.`) : ''}${facts}` +
    `<details><summary>All metrics by step</summary>${stepTable(shown)}</details>`
  );
}

function unitsSection({ content, record }: ExperimentReport): string {
  if (content.units.length === 0) return '';
  const rows = content.units.map(({ unit, totals, toolErrorClasses }) => [
    unit.name,
    `${formatNumber(totals.correct)} of ${formatNumber(totals.samples)}`,
    formatNumber(totals.byOutcome.no_answer + totals.byOutcome.contradictory),
    formatNumber(totals.capped),
    formatNumber(totals.toolErrors),
    formatNumber(totals.invalidDispatches),
    Object.entries(toolErrorClasses)
      .filter(([, n]) => n > 0)
      .map(([name, n]) => `${name} ${n}`)
      .join(', ') || 'none',
    formatNumber(totals.sampledTokens),
    formatNumber(totals.sampledTokens + totals.discardedTokens),
    formatSeconds(record.unitSeconds[unit.name] ?? 0),
  ]);
  const head = [
    'evaluation',
    'correct',
    'malformed',
    'capped',
    'tool errors',
    'invalid calls',
    'by class',
    'tokens',
    'physical',
    'time',
  ];
  return (
    '<h2 ' +
    `id="evaluations">Evaluations</h2>${table({ caption: 'One row a policy, suite and seed', head, left: [6], rows, wide: true })}`
  );
}

function releaseSection({ content, record }: ExperimentReport): string {
  const { merge } = content;
  const { state, filled, of, by } = record.inspection;
  const rows: string[][] = [
    ['language inspection', `${state}: ${filled} of ${of} replies${by === '' ? '' : `, by ${by}`}`],
  ];
  if (merge) {
    rows.push(
      ['merged model (tree SHA-256)', merge.treeSha256],
      ['merge against the adapter', merge.verdict],
      ['tensors merged', formatNumber(merge.tensors)],
      ['share of elements that changed', formatPercent(merge.totals.changedShare)],
      [
        'largest update that was lost',
        `${formatNumber(merge.totals.largestLostUpdate)}, in ${merge.largestLostTensor}`,
      ],
    );
  }
  return (
    '<h2 id="release">Release ' +
    `evidence</h2>${table({ caption: 'This report releases nothing', head: ['', 'value'], left: [1], rows })}`
  );
}

function recordSection({ content, record }: ExperimentReport): string {
  const attempts = table({
    caption:
      `Budget: ${formatNumber(record.budget.chargedSeconds)} s charged of ` +
      `${formatNumber(record.budget.wallSeconds)} s`,
    head: ['attempt', 'started', 'ended as', 'reason', 'charged (s)'],
    left: [1, 2, 3],
    rows: record.attempts.map(({ attempt, started, status, reason, chargedSeconds }) => [
      String(attempt),
      started,
      status,
      reason,
      formatNumber(chargedSeconds),
    ]),
  });
  const stages = table({
    caption: 'Run time by stage, in the attempt that finished it',
    head: ['stage', 'time'],
    rows: Object.entries(record.stageSeconds).map(([stage, seconds]) => [stage, formatSeconds(seconds)]),
  });
  const facts = table({
    caption: 'What ran, on what, where',
    head: ['', 'value'],
    left: [1],
    rows: [
      ['plan (SHA-256)', content.planSha256],
      ['arm', content.arm],
      ...Object.entries(content.identities),
      ...Object.entries(content.device),
      ...content.baselines.map(({ suite, reused, reason }) => [
        `baseline of ${suite}`,
        reused ? "the first arm's evaluations, byte for byte" : `evaluated again: ${reason}`,
      ]),
    ],
  });
  const evidence = table({
    caption: 'Evidence index',
    head: ['figure of', 'journal', 'line', 'SHA-256 of the line'],
    left: [1, 3],
    rows: record.evidence.map(({ what, journal, line, sha256 }) => [what, journal, String(line), sha256]),
  });
  const recovered =
    record.recovered.length === 0
      ? none('Nothing was moved to recovery/.')
      : table({
          caption: 'Moved to recovery/',
          head: ['from', 'to', 'why'],
          left: [1, 2],
          rows: record.recovered.map(({ from, to, reason }) => [from, to, reason]),
        });
  return (
    `<h2 id="record">Record</h2>${attempts}${stages}${recovered}${facts}` +
    `<details><summary>Evidence index</summary>${evidence}</details>`
  );
}

/** The whole report as one self-contained HTML document. Deterministic: the same report gives the same bytes. */
export function renderExperimentHtml(report: ExperimentReport): string {
  const { content } = report;
  const title = `Experiment ${content.recipe}, arm ${content.arm}`;
  const { qualification } = content;
  const qualified = qualification
    ? `Stopped after ${qualification.stopAfter} of ${qualification.steps} steps and resumed in a new process: ` +
      `${qualification.passed ? 'equal bytes' : 'not equal'}; a repeat too. The comparison saw a flipped bit at ` +
      `${qualification.flippedBitSeen}.`
    : 'The resume qualification has not passed yet.';
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)}</title>
<style>${REPORT_STYLE}</style>
</head>
<body>
<header>
<p class="over">shaderl experiment report</p>
<h1>${escapeHtml(title)}</h1>
<p class="headline">${escapeHtml(content.headline)}</p>
<p><span class="badge">release_eligible: ${report.release_eligible}</span></p>
</header>
<main>
${comparisonSection(report, 'final', 'Final agent assessment', content.final)}
${comparisonSection(report, 'retention', 'Retention', content.retention?.comparison ?? null)}
<h2 id="meaning">What this can and cannot show</h2>
<div class="verdicts">
<div><h3>It can show</h3>${list(content.canShow)}</div>
<div><h3>It cannot show</h3>${list(content.cannotShow)}</div>
</div>
${selectionSection(report)}
<h2 id="qualification">Resume qualification</h2><p>${escapeHtml(qualified)}</p>
${trainingSection(report)}
${unitsSection(report)}
${releaseSection(report)}
${recordSection(report)}
</main>
<footer><p>Made from the experiment's own records by shaderl.
The same figures, unrounded, are in report.json.</p></footer>
</body>
</html>
`;
}
