// Renders an experiment's report as one HTML file that needs nothing else: style and figures inline, no script.
// Not the content (report.ts). Invariant: text from the run is escaped; figures and tables are the report module's own.
import type { Comparison } from '../evaluation/compare.ts';
import { figureHtml } from '../report/figure-html.ts';
import { learningFigure, trainingFigures } from '../report/figures.ts';
import { escapeHtml, formatNumber, formatPercent, formatSeconds } from '../report/format.ts';
import type { ReportJson } from '../report/schema.ts';
import { REPORT_STYLE } from '../report/style.ts';
import { stepTable, table } from '../report/tables.ts';
import type { ExperimentReport } from './report.ts';
import { list, muted, sideBySide } from './report-parts.ts';
import { comparisonSection, droppedText, evaluationsSection, selectionSection, tiles } from './report-results.ts';

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

function trainingSection(report: ExperimentReport): string {
  const { training } = report.content;
  if (!training) return `<h2 id="training">Training</h2>${muted('Not begun yet.')}`;
  const shown = trainingReport(report, null);
  const { figures, absent } = trainingFigures(shown);
  const { tokens, audit } = training;
  const dropped = report.record.droppedTokens.training;
  const facts = table({
    caption: 'Training in counts',
    head: ['', 'value'],
    rows: [
      ['steps', formatNumber(training.steps.length)],
      ['rollouts audited, findings', `${formatNumber(audit.rollouts)}, ${formatNumber(audit.findings)}`],
      ['rollouts cut off at the cap', formatNumber(tokens.capped)],
      ['tokens of the retained streams (prompts and observations included)', formatNumber(tokens.retained)],
      ['tokens sampled and retained', formatNumber(tokens.sampled)],
      ['tokens sampled and discarded past the cap', formatNumber(tokens.discarded)],
      ['tokens drawn and dropped: after a stop, or in a failed attempt', droppedText(dropped)],
      ['tokens drawn in all (physical)', formatNumber(tokens.sampled + tokens.discarded + (dropped ?? 0))],
      ['sealed checkpoints', training.checkpoints.join(', ')],
    ],
  });
  return (
    `<h2 id="training">Training</h2><div class="figures">${figureHtml(learningFigure(shown, 250), 'training')}` +
    `${figures.map((figure) => figureHtml(figure, 'training')).join('\n')}</div>` +
    `${absent.length > 0 ? muted(`Not recorded in this run: ${absent.join(', ')}.`) : ''}${facts}` +
    `<details><summary>All metrics by step</summary>${stepTable(shown)}</details>`
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
      ['every tensor', merge.file],
    );
  }
  return (
    '<h2 id="release">Release ' +
    `evidence</h2>${table({ caption: 'This report releases nothing', head: ['', 'value'], left: [1], rows })}`
  );
}

function settingsTable({ content }: ExperimentReport): string {
  return table({
    caption: `Recipe ${content.recipe}: what the plan froze before the first rollout`,
    head: ['', 'value'],
    left: [1],
    rows: Object.entries(content.settings),
  });
}

function recordSection({ content, record }: ExperimentReport): string {
  const attempts = table({
    caption:
      `Budget: ${formatNumber(record.budget.chargedSeconds)} s charged of ` +
      `${formatNumber(record.budget.wallSeconds)} s`,
    head: ['attempt', 'started (UTC)', 'ended as', 'reason', 'charged (s)'],
    left: [1, 2, 3],
    rows: record.attempts.map(({ attempt, started, status, reason, chargedSeconds }) => [
      String(attempt),
      started.slice(0, 19).replace('T', ' '),
      status,
      reason,
      formatNumber(chargedSeconds),
    ]),
    wide: true,
  });
  const stages = table({
    caption: 'Run time by stage, in the attempt that finished it',
    head: ['stage', 'wall time'],
    rows: Object.entries(record.stageSeconds).map(([stage, seconds]) => [stage, formatSeconds(seconds)]),
    wide: true,
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
    caption: 'The line of a journal that a figure rests on',
    head: ['figure of', 'journal', 'line', 'SHA-256 of the line'],
    left: [1, 3],
    rows: record.evidence.map(({ what, journal, line, sha256 }) => [what, journal, String(line), sha256]),
  });
  const recovered =
    record.recovered.length === 0
      ? muted('Nothing was moved to recovery/.')
      : table({
          caption: 'Moved to recovery/',
          head: ['from', 'to', 'why'],
          left: [1, 2],
          rows: record.recovered.map(({ from, to, reason }) => [from, to, reason]),
        });
  return (
    `<h2 id="record">Record</h2>${sideBySide(attempts, stages)}${recovered}${facts}` +
    `<details><summary>Evidence index, ${formatNumber(record.evidence.length)} entries</summary>${evidence}</details>`
  );
}

/** The whole report as one self-contained HTML document. Deterministic: the same report gives the same bytes. */
export function renderExperimentHtml(report: ExperimentReport): string {
  const { content } = report;
  const title = `Experiment ${content.recipe}, arm ${content.arm}`;
  const { qualification } = content;
  const training = (comparison: Comparison) => trainingReport(report, comparison);
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
${tiles(report)}
</header>
<main>
${comparisonSection(report, 'final', 'Final agent assessment', content.final, training)}
${comparisonSection(report, 'retention', 'Retention', content.retention?.comparison ?? null, training)}
<h2 id="meaning">What this can and cannot show</h2>
<div class="verdicts">
<div><h3>It can show</h3>${list(content.canShow)}</div>
<div><h3>It cannot show</h3>${list(content.cannotShow)}</div>
</div>
${selectionSection(report)}
<h2 id="qualification">Resume qualification</h2><p>${escapeHtml(qualified)}</p>
${trainingSection(report)}
${evaluationsSection(report)}
${releaseSection(report)}
<h2 id="settings">Frozen settings</h2>${settingsTable(report)}
${recordSection(report)}
</main>
<footer><p>Made from the experiment's own records by shaderl.
The same figures, unrounded, are in report.json.</p></footer>
</body>
</html>
`;
}
