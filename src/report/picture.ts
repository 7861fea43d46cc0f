// One standalone SVG of a run for a README: the learning curve beside strict success before and after.
// Not the report. Invariant: it carries its own colours for light and dark, and refers to nothing outside.
import { differenceFigure, type Figure, type LegendEntry, learningFigure, ratesFigure } from './figures.ts';
import { escapeHtml } from './format.ts';
import type { ReportJson } from './schema.ts';
import { colourVariables } from './style.ts';

const GAP = 28;
const PAD = 24;

interface Placed {
  svg: string;
  width: number;
  height: number;
}

/** A figure's `<svg>` placed at x, y inside another one. */
function place(figure: Figure, x: number, y: number): Placed {
  const size = (name: string) => Number(new RegExp(`data-${name}="(\\d+)"`).exec(figure.svg)![1]);
  const [width, height] = [size('width'), size('height')];
  return { svg: figure.svg.replace('<svg ', `<svg x="${x}" y="${y}" `), width, height };
}

function legend(entries: readonly LegendEntry[], x: number, y: number): string {
  return entries
    .map(({ label, colour, dash }, i) => {
      const left = x + i * 150;
      const pattern = dash ? ` stroke-dasharray="${dash}"` : '';
      return (
        `<line x1="${left}" y1="${y - 4}" x2="${left + 26}" y2="${y - 4}" stroke="${colour}" ` +
        `stroke-width="2.5"${pattern}/>` +
        `<text x="${left + 34}" y="${y}" class="small">${escapeHtml(label)}</text>`
      );
    })
    .join('');
}

/**
 * The picture as SVG text, about 1100 by 370 units. Throws nothing: parts that the run lacks are left out.
 * Deterministic: the same report gives the same bytes.
 */
export function renderPlotSvg(report: ReportJson): string {
  const learning = learningFigure(report, 278);
  const rates = ratesFigure(report);
  const difference = differenceFigure(report);
  const parts: string[] = [];
  let x = PAD;
  let bottom = 0;
  const heading = (figure: Figure, left: number, y: number) =>
    `<text x="${left}" y="${y}" class="heading">${escapeHtml(figure.title)}</text>`;
  if (learning) {
    const placed = place(learning, x, PAD + 52);
    parts.push(heading(learning, x, PAD + 14), legend(learning.legend, x, PAD + 40), placed.svg);
    x += placed.width + GAP;
    bottom = Math.max(bottom, PAD + 52 + placed.height);
  }
  if (rates && difference) {
    const upper = place(rates, x, PAD + 24);
    const below = PAD + 24 + upper.height + 34;
    const lower = place(difference, x, below);
    parts.push(heading(rates, x, PAD + 14), upper.svg, heading(difference, x, below - 8), lower.svg);
    x += upper.width + GAP;
    bottom = Math.max(bottom, below + lower.height);
  }
  const [width, height] = [x - GAP + PAD, bottom + PAD];
  const size = `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`;
  const label = escapeHtml(report.headline);
  return `<svg xmlns="http://www.w3.org/2000/svg" class="picture" ${size} role="img" aria-label="${label}">
<title>${label}</title>
<style>${colourVariables('.picture')}
.picture { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif; }
.picture .card { fill: var(--card); stroke: var(--line); }
.picture text { white-space: pre; }
.picture .heading { font-size: 15px; font-weight: 600; fill: var(--ink); }
.picture .small { font-size: 13px; fill: var(--muted); }
.picture .plot { font-size: 13px; color: var(--muted); overflow: visible; }
.picture [aria-label$="grid"] { stroke: var(--line); stroke-opacity: 1; }
</style>
<rect class="card" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="10"/>
${parts.join('\n')}
</svg>
`;
}
