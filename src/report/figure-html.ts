// A figure of a report as HTML: title, legend, drawing and caption.
// Not the drawing (figures.ts). Invariant: text from the run is escaped.
import type { Figure, LegendEntry } from './figures.ts';
import { escapeHtml } from './format.ts';

function legendHtml(entries: readonly LegendEntry[]): string {
  if (entries.length === 0) return '';
  const items = entries.map(({ label, colour, dash, area }) => {
    const pattern = dash ? ` stroke-dasharray="${dash}"` : '';
    const mark = area
      ? `<rect width="26" height="10" fill="${colour}" fill-opacity="0.8"/>`
      : `<line x1="0" y1="5" x2="26" y2="5" stroke="${colour}" stroke-width="2.5"${pattern}/>`;
    return `<li><svg aria-hidden="true" viewBox="0 0 26 10">${mark}</svg>${escapeHtml(label)}</li>`;
  });
  return `<ul class="legend">${items.join('')}</ul>`;
}

/** A figure; `section` keeps the ids of two figures of a kind apart. */
export function figureHtml(figure: Figure | null, section?: string): string {
  if (!figure) return '';
  const id = section === undefined ? figure.id : `${section}-${figure.id}`;
  return (
    `<figure id="${id}"><h3>${escapeHtml(figure.title)}</h3>${legendHtml(figure.legend)}${figure.svg}` +
    `<figcaption>${escapeHtml(figure.caption)}</figcaption></figure>`
  );
}
