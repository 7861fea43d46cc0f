// Draws single figures as SVG with Observable Plot on linkedom, without a browser.
// Not the choice of figures: see figures.ts.
// Invariant: colours are CSS variables of the page (`--ink`, `--series-1` ...), so one SVG serves light and dark.
import * as Plot from '@observablehq/plot';
import { parseHTML } from 'linkedom';
import { formatPowerOfTen } from './format.ts';

const FIGURE_WIDTH = 520;

/** One curve: its points (a missing or non-finite value is left out) and its look. */
export interface Series {
  label: string;
  points: { step: number; value: number }[];
  /** CSS colour, a variable of the page. */
  colour: string;
  /** SVG dash pattern, so that curves differ without colour. */
  dash?: string;
}

export interface StepPlot {
  title: string;
  /** Axis label with its unit in brackets. */
  yLabel: string;
  series: Series[];
  /** Values are shares and are shown as per cent. */
  percent?: boolean;
  /** Least extent of the y axis; values outside widen it. */
  yDomain?: [number, number];
  /** Steps of the moving mean that is drawn as a line; 1 joins the points themselves. */
  window: number;
  height?: number;
}

type Marks = NonNullable<Plot.PlotOptions['marks']>;

/** Renders `marks` and returns the `<svg>` text with a title for screen readers and without Plot's own style sheet. */
function draw(title: string, options: Omit<Plot.PlotOptions, 'marks'>, marks: Marks): string {
  const { document } = parseHTML('<!doctype html><html><body></body></html>');
  const svg = Plot.plot({
    document: document as unknown as Document,
    className: 'plot',
    width: FIGURE_WIDTH,
    ...options,
    marks,
  });
  svg.querySelector('style')?.remove();
  const name = document.createElementNS('http://www.w3.org/2000/svg', 'title');
  name.textContent = title;
  svg.prepend(name as unknown as Node);
  svg.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', title);
  for (const attribute of ['width', 'height']) svg.setAttribute(`data-${attribute}`, svg.getAttribute(attribute) ?? '');
  return svg.outerHTML;
}

const stepAxis = (steps: number[]): Plot.ScaleOptions => ({
  label: 'optimizer step',
  domain: [Math.min(...steps), Math.max(...steps) === Math.min(...steps) ? Math.min(...steps) + 1 : Math.max(...steps)],
  ticks: Math.min(8, Math.max(1, steps.length - 1)),
  tickFormat: (step: number) => (Number.isInteger(step) ? String(step) : ''),
});

/** Curves over optimizer steps: a dot for each step, and a moving mean as a line. */
export function drawSteps(plot: StepPlot): string {
  const scale = plot.percent ? 100 : 1;
  const series = plot.series.map((one) => ({
    ...one,
    points: one.points.filter((p) => Number.isFinite(p.value)).map((p) => ({ step: p.step, value: p.value * scale })),
  }));
  const steps = series.flatMap((one) => one.points.map((p) => p.step));
  const values = series.flatMap((one) => one.points.map((p) => p.value));
  // A constant curve has no range of its own: it gets one around its value instead of a degenerate axis.
  const [low, high] = [Math.min(...values, 0), Math.max(...values)];
  const domain = plot.yDomain
    ? [Math.min(plot.yDomain[0] * scale, low), Math.max(plot.yDomain[1] * scale, high)]
    : [low, low === high ? low + 1 : high + (high - low) * 0.04];
  const smooth = plot.window > 1;
  const marks: Marks = [
    Plot.ruleY([Math.max(0, domain[0]!)], { stroke: 'var(--axis)' }),
    ...series.flatMap((one) => [
      ...(smooth || one.points.length < 60
        ? [
            Plot.dot(one.points, {
              x: 'step',
              y: 'value',
              r: smooth ? 1.9 : 2.2,
              fill: one.colour,
              fillOpacity: smooth ? 0.35 : 1,
            }),
          ]
        : []),
      Plot.lineY(
        one.points,
        Plot.windowY({ k: plot.window, anchor: 'middle', strict: false } as Plot.WindowOptions, {
          x: 'step',
          y: 'value',
          stroke: one.colour,
          strokeWidth: 2.2,
          ...(one.dash === undefined ? {} : { strokeDasharray: one.dash }),
        }),
      ),
    ]),
  ];
  return draw(
    plot.title,
    {
      height: plot.height ?? 250,
      // Tick labels such as 5 × 10⁻⁴ need room; ticks are a fifth of the domain or so apart.
      marginLeft: domain[1]! < 5e-3 ? 86 : 56,
      marginRight: 18,
      marginTop: 30,
      marginBottom: 42,
      x: stepAxis(steps),
      y: { label: plot.yLabel, domain, grid: true, ticks: 5, ...(plot.percent ? {} : { tickFormat: tickText }) },
    },
    marks,
  );
}

function tickText(value: number): string {
  if (value !== 0 && Math.abs(value) < 1e-3) return formatPowerOfTen(Number(value.toPrecision(2)));
  return String(Number(value.toPrecision(6))).replace('-', '\u2212');
}

export interface TimePart {
  label: string;
  colour: string;
  points: { step: number; value: number }[];
}

/** Seconds a step, stacked in the order of `parts` from the bottom. */
export function drawTimes(title: string, parts: TimePart[]): string {
  const rows = parts.flatMap((part) => part.points.map((p) => ({ ...p, part: part.label })));
  return draw(
    title,
    {
      height: 250,
      marginLeft: 56,
      marginRight: 18,
      marginTop: 30,
      marginBottom: 42,
      x: stepAxis(rows.map((row) => row.step)),
      y: { label: 'time per step (s)', grid: true, ticks: 5 },
      color: { domain: parts.map((p) => p.label), range: parts.map((p) => p.colour) },
    },
    [
      Plot.areaY(rows, {
        x: 'step',
        y: 'value',
        z: 'part',
        fill: 'part',
        fillOpacity: 0.8,
        order: parts.map((p) => p.label),
        curve: 'step',
        stroke: 'var(--paper)',
        strokeWidth: 0.6,
      }),
      Plot.ruleY([0], { stroke: 'var(--axis)' }),
    ],
  );
}

export interface IntervalRow {
  label: string;
  value: number;
  low: number | null;
  high: number | null;
  text: string;
  colour: string;
  symbol: 'circle' | 'square' | 'diamond';
}

/** Estimates with intervals, one row each; values in per cent or percentage points on `domain`. */
export function drawIntervals(plot: {
  title: string;
  xLabel: string;
  rows: IntervalRow[];
  domain: [number, number];
  zeroLine: boolean;
}): string {
  const span = plot.domain[1] - plot.domain[0];
  // A label near an end is anchored there, so that it never leaves the figure.
  const anchor = (row: IntervalRow) =>
    row.value < plot.domain[0] + 0.2 * span ? 'start' : row.value > plot.domain[1] - 0.2 * span ? 'end' : 'middle';
  const bounded = plot.rows.filter((row) => row.low !== null && row.high !== null);
  return draw(
    plot.title,
    {
      height: 58 + 50 * plot.rows.length,
      marginLeft: 92,
      marginRight: 18,
      marginTop: 14,
      marginBottom: 42,
      x: { label: plot.xLabel, domain: plot.domain, grid: true, ticks: 6, tickFormat: tickText },
      y: { label: null, domain: plot.rows.map((row) => row.label), tickSize: 0, padding: 0.2 },
    },
    [
      ...(plot.zeroLine ? [Plot.ruleX([0], { stroke: 'var(--ink)', strokeDasharray: '4 3' })] : []),
      ...bounded.map((row) =>
        Plot.ruleY([row], {
          x1: 'low',
          x2: 'high',
          y: 'label',
          stroke: row.colour,
          strokeWidth: 5,
          strokeOpacity: 0.45,
        }),
      ),
      ...plot.rows.flatMap((row) => [
        Plot.dot([row], { x: 'value', y: 'label', r: 6, symbol: row.symbol, fill: row.colour }),
        Plot.text([row], {
          x: 'value',
          y: 'label',
          text: 'text',
          dy: -17,
          textAnchor: anchor(row),
          fill: 'var(--ink)',
          // A halo, where a rule passes behind the text.
          stroke: 'var(--card)',
          strokeWidth: 4,
        }),
      ]),
    ],
  );
}
