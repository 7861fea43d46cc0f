// Renders a report as one HTML file that needs nothing else: style and figures inline, no script, no request.
// Not the content: sentences and figures come from statements.ts and figures.ts.
// Invariant: text from the run is escaped.
import { figureHtml } from './figure-html.ts';
import { differenceFigure, learningFigure, ratesFigure, trainingFigures } from './figures.ts';
import { escapeHtml, formatNumber, formatPercent, formatPoints, formatSeconds, formatSignedPoints } from './format.ts';
import { rolloutSection } from './rollouts.ts';
import type { ReportJson } from './schema.ts';
import { REPORT_STYLE } from './style.ts';
import { comparisonTables, methodTable, pairedTable, stepTable, table } from './tables.ts';

function tiles(report: ReportJson): string {
  const { comparison, audit, device } = report;
  const entries: [string, string, string][] = [];
  if (comparison) {
    const { difference, interval } = comparison.difference;
    entries.push(
      [
        comparison.measure,
        `${formatPercent(comparison.a.rate)} → ${formatPercent(comparison.b.rate)}`,
        `${comparison.items} items, ${comparison.samples} samples per arm`,
      ],
      [
        'paired difference',
        formatPoints(difference),
        interval ? `95 %: ${formatSignedPoints(interval.low)} to ${formatSignedPoints(interval.high)}` : 'no interval',
      ],
    );
  }
  entries.push(
    [
      'training',
      `${formatNumber(report.steps.length)} steps`,
      `${formatSeconds(report.seconds)}, seed ${report.trainingSeed}`,
    ],
    [
      'audit',
      `${formatNumber(audit.findings)} findings`,
      `${formatNumber(audit.rollouts)} rollouts, ${formatNumber(audit.sampledTokens)} sampled tokens`,
    ],
    ['device', device.software ? 'software' : 'GPU', `${device.name}, family ${device.family}`],
  );
  const cells = entries.map(
    ([term, value, detail]) =>
      `<div><dt>${escapeHtml(term)}</dt><dd>${escapeHtml(value)}<small>${escapeHtml(detail)}</small></dd></div>`,
  );
  return `<dl class="tiles">${cells.join('')}</dl>`;
}

const list = (lines: readonly string[]) => `<ul>${lines.map((line) => `<li>${escapeHtml(line)}</li>`).join('')}</ul>`;

function resultSection(report: ReportJson): string {
  const { comparison } = report;
  const side = `<div class="stack">${figureHtml(ratesFigure(report))}${figureHtml(differenceFigure(report))}</div>`;
  const curve = figureHtml(learningFigure(report, comparison ? 372 : 250));
  const first = `<div class="figures">${curve}${comparison ? side : ''}</div>`;
  const tables = comparison
    ? `${pairedTable(comparison)}${comparisonTables(comparison)}` +
      '<details><summary>Method of the interval and the test</summary>' +
      `${methodTable(comparison)}</details>`
    : '<p class="muted">No pair of evaluations was made.</p>';
  const notes =
    comparison && comparison.notes.length > 0 ? `<p class="muted">${escapeHtml(comparison.notes.join(' '))}</p>` : '';
  return `<h2 id="result">Result</h2>${first}${notes}${tables}`;
}

function trainingSection(report: ReportJson): string {
  const { figures, absent } = trainingFigures(report);
  const missing =
    absent.length === 0 ? '' : `<p class="muted">Not recorded in this run: ${escapeHtml(absent.join(', '))}.</p>`;
  return (
    `<h2 id="training">Training</h2><div class="figures">${figures.map((figure) => figureHtml(figure)).join('\n')}</div>${missing}` +
    `<details><summary>All metrics by step</summary>${stepTable(report)}</details>`
  );
}

function auditSection({ audit, checkpoints }: ReportJson): string {
  const points = table({
    caption: `Checked on each of ${formatNumber(audit.rollouts)} rollouts before training on it`,
    head: ['point', 'findings'],
    rows: audit.points.map((point) => [point.name, formatNumber(point.findings)]),
  });
  const saved =
    checkpoints.length === 0
      ? '<p class="muted">No checkpoint was sealed.</p>'
      : table({
          caption: 'Sealed checkpoints',
          head: ['step', 'path', 'adapter SHA-256', 'journal entry'],
          left: [1, 2, 3],
          rows: checkpoints.map((c) => [
            String(c.step),
            c.path,
            c.adapterSha256,
            c.journal ? `${c.journal.index} (${c.journal.hash.slice(0, 12)})` : '',
          ]),
        });
  return `<h2 id="audit">Audit and checkpoints</h2>${points}${saved}`;
}

function provenanceSection(report: ReportJson): string {
  const evaluation = report.after ?? report.before;
  const rows: string[][] = [
    ['device', report.device.name],
    ['kernel family', report.device.family],
    ...report.device.facts,
    ['training seed', String(report.trainingSeed)],
  ];
  if (evaluation) {
    rows.push(
      ['base model (tree SHA-256)', evaluation.modelTreeSha256],
      ['adapter after training (SHA-256)', report.after?.adapterSha256 ?? 'none'],
      ['generation seeds', evaluation.seeds.join(', ')],
      [
        'sampling, both arms',
        Object.entries(evaluation.sampling)
          .map(([key, value]) => `${key} ${value ?? 'none'}`)
          .join(', '),
      ],
    );
  }
  return (
    '<h2 id="provenance">Provenance</h2>' +
    table({ caption: 'What ran, and where', head: ['', 'value'], rows, left: [1] }) +
    '<details><summary>Run configuration</summary>' +
    `<pre class="config" tabindex="0">${escapeHtml(JSON.stringify(report.config, null, 2))}</pre></details>`
  );
}

/** The whole report as one self-contained HTML document. Deterministic: the same report gives the same bytes. */
export function renderReportHtml(report: ReportJson): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(report.title)}</title>
<style>${REPORT_STYLE}</style>
</head>
<body>
<header>
<p class="over">shaderl training report</p>
<h1>${escapeHtml(report.title)}</h1>
<p class="headline">${escapeHtml(report.headline)}</p>
<p class="muted">${escapeHtml(report.task.description)}</p>
<p><span class="badge">release_eligible: ${report.release_eligible}</span></p>
${tiles(report)}
</header>
<main>
${resultSection(report)}
<h2 id="meaning">What this can and cannot show</h2>
<div class="verdicts">
<div><h3>It can show</h3>${list(report.canShow)}</div>
<div><h3>It cannot show</h3>${list(report.cannotShow)}</div>
</div>
${trainingSection(report)}
<h2 id="rollouts">Sample rollouts</h2>
${rolloutSection(report.rollouts)}
${auditSection(report)}
${provenanceSection(report)}
</main>
<footer><p>Made from the run's own records by shaderl. The same figures, unrounded, are in report.json.</p></footer>
</body>
</html>
`;
}
