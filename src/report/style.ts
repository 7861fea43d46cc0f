// The style sheet of a report, inlined into its HTML. Not shared with other pages.
// Invariant: no url(), no @import: the file must stand alone; contrast of text is at least 4.5 in both schemes.

/** Variables that figures use; `selector` is where they live (`:root`, or the `svg` of a standalone picture). */
export function colourVariables(selector: string): string {
  return `
${selector} {
  color-scheme: light dark;
  --paper: #fdfdfb; --card: #ffffff; --ink: #1c2024; --muted: #5b636b; --axis: #9aa1a8; --line: #dfe2e4;
  --series-1: #1f66b0; --series-2: #b8480b; --series-3: #1f7a57; --series-4: #7a5aa6;
  --prompt: #5b636b; --template: #5b636b; --observation: #17654a; --sampled: #17528f; --forced: #8f3407;
  --observation-fill: #e3f3ec; --sampled-fill: #e7f0fa; --forced-fill: #fbe9df;
}
@media (prefers-color-scheme: dark) {
  ${selector} {
    --paper: #14171a; --card: #1b1f23; --ink: #e8eaec; --muted: #a3abb3; --axis: #69727a; --line: #31373d;
    --series-1: #76b4f5; --series-2: #f59a5b; --series-3: #62cba0; --series-4: #b99ae6;
    --prompt: #a3abb3; --template: #a3abb3; --observation: #82d9b4; --sampled: #9ccafa; --forced: #f7b285;
    --observation-fill: #17332a; --sampled-fill: #182c42; --forced-fill: #3b2416;
  }
}`;
}

export const REPORT_STYLE = `${colourVariables(':root')}
* { box-sizing: border-box; }
html { font-size: 16px; -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif; line-height: 1.5;
}
main, header, footer { max-width: 1120px; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 3rem; }
h1, h2 { font-family: Charter, "Bitstream Charter", "Sitka Text", Cambria, "Noto Serif", "Liberation Serif", serif;
  line-height: 1.2; }
h1 { font-size: clamp(1.7rem, 4.5vw, 2.5rem); margin: 0.3rem 0 0.6rem; letter-spacing: -0.01em;
  overflow-wrap: anywhere; }
h2 { font-size: 1.5rem; margin: 3rem 0 0.75rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 0.15rem; }
p { max-width: 44rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
.over { color: var(--muted); font-size: 0.85rem; letter-spacing: 0.04em; margin: 0; }
.headline { font-size: clamp(1.1rem, 2.6vw, 1.35rem); line-height: 1.4; max-width: 52rem; }
.muted, figcaption { color: var(--muted); }
.badge {
  display: inline-block; border: 1px solid var(--axis); border-radius: 999px; padding: 0.1rem 0.7rem;
  font-size: 0.85rem;
  white-space: nowrap;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1px; margin: 1.75rem 0 0;
  padding: 0;
  background: var(--line); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tiles > div { background: var(--card); padding: 0.8rem 1rem; }
.tiles dt { color: var(--muted); font-size: 0.85rem; }
.tiles dd { margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { display: block; font-size: 0.8rem; font-weight: 400; color: var(--muted); overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem; }
.stack { display: grid; gap: 1.25rem; align-content: start; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.9rem 1rem;
  min-width: 0; }
figcaption { font-size: 0.85rem; line-height: 1.45; margin-top: 0.3rem; }
svg.plot { display: block; width: 100%; height: auto; overflow: visible; font-size: 13px; color: var(--muted);
  font-family: inherit; }
svg.plot text { white-space: pre; }
svg.plot [aria-label$="grid"] { stroke: var(--line); stroke-opacity: 1; }
.tables { margin: 2rem 0 1rem; }
.scroll { margin: 1rem 0; }
.tables > .scroll { margin: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1.1rem; font-size: 0.85rem; margin: 0; padding: 0;
  list-style: none; }
.legend svg { width: 26px; height: 10px; vertical-align: middle; margin-right: 0.4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
table.wide { width: 100%; }
caption { text-align: left; color: var(--muted); font-size: 0.85rem; padding-bottom: 0.4rem; }
th, td { padding: 0.32rem 0.9rem 0.32rem 0; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; }
th:first-child, td:first-child, .left { text-align: left; }
thead th { color: var(--muted); font-weight: 500; vertical-align: bottom; }
tbody th { font-weight: 400; }
td:not(.left) { white-space: nowrap; }
code { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 0.85em;
  overflow-wrap: anywhere; }
.verdicts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 2.5rem; }
.verdicts ul { padding-left: 1.1rem; margin: 0.4rem 0; }
.verdicts li { margin: 0.35rem 0; }
.rollouts { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem; align-items: start; }
article { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.9rem 1rem;
  min-width: 0; }
.stream { font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; font-size: 0.82rem;
  line-height: 1.75;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5rem 0 0; max-width: none; }
.run::before { content: attr(data-mark); font-size: 0.7em; font-weight: 700; padding: 0 0.25em; margin-right: 0.3em;
  border-radius: 3px;
  border: 1px solid currentColor; vertical-align: 0.1em; }
.prompt { color: var(--prompt); font-style: italic; }
.template { color: var(--template); text-decoration: underline dotted; text-underline-offset: 0.25em; }
.observation { color: var(--observation); background: var(--observation-fill); text-decoration: underline double;
  text-underline-offset: 0.25em; }
.sampled { color: var(--sampled); background: var(--sampled-fill); font-weight: 600; }
.forced { color: var(--forced); background: var(--forced-fill); text-decoration: underline wavy;
  text-underline-offset: 0.25em; }
.key { display: flex; flex-wrap: wrap; gap: 0.3rem 1.25rem; padding: 0; list-style: none; font-size: 0.88rem; }
details { margin: 0.75rem 0; }
summary { cursor: pointer; }
summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--series-1); outline-offset: 2px; }
pre.config { font-size: 0.85rem; overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 0.8rem 1rem; }
footer { color: var(--muted); font-size: 0.85rem; padding-top: 2rem; padding-bottom: 3rem; }
@media (max-width: 720px) {
  .figures, .rollouts, .verdicts { grid-template-columns: minmax(0, 1fr); }
  header { padding-top: 1.5rem; }
  figure { padding: 0.7rem 0.6rem; }
  svg.plot { font-size: 16px; }
  .tiles > div:last-child:nth-child(odd) { grid-column: 1 / -1; }
}
@media print { details > * { display: block; } figure, article { break-inside: avoid; } }
`;
