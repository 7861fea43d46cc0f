// Small pieces of an experiment's HTML report that its sections share.
// Not a section. Invariant: text from the run is escaped.
import type { Figure, LegendEntry } from '../report/figures.ts';
import { escapeHtml } from '../report/format.ts';

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
export function figureHtml(figure: Figure | null, section: string): string {
  if (!figure) return '';
  return (
    '<figure ' +
    `id="${section}-${figure.id}"><h3>${escapeHtml(figure.title)}</h3>${legendHtml(figure.legend)}${figure.svg}` +
    `<figcaption>${escapeHtml(figure.caption)}</figcaption></figure>`
  );
}

export const list = (lines: readonly string[]) =>
  `<ul>${lines.map((line) => `<li>${escapeHtml(line)}</li>`).join('')}</ul>`;
export const paragraph = (text: string) => `<p>${escapeHtml(text)}</p>`;
export const muted = (text: string) => `<p class="muted">${escapeHtml(text)}</p>`;
export const sideBySide = (...parts: string[]) => `<div class="figures tables">${parts.join('')}</div>`;

/** What a policy of the experiment is called. */
export const policyName = (step: number) => (step === 0 ? 'baseline' : `step ${step}`);
