// uPlot charts of a run: lines over steps, with the points of the journal drawn on them.
// Not the data (src/inspect/run-series.ts). Invariant: colours come from the page's style; lines differ in dashes too.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { h } from './dom.ts';
import { axisNumbers, number } from './format.ts';

export interface Marker {
  x: number;
  kind: 'checkpoint' | 'resume';
}

export interface ChartInput {
  title: string;
  unit: string;
  labels: readonly string[];
  /** [x, then one list a line]. */
  data: (number | null)[][];
  markers: readonly Marker[];
  /** Points of evaluations, by value. */
  points: readonly { x: number; y: number; label: string }[];
  onStep: (step: number) => void;
}

export interface Chart {
  element: HTMLElement;
  update(data: (number | null)[][], markers: readonly Marker[], points: ChartInput['points']): void;
  destroy(): void;
}

const height = 150;
const dashes = [[], [6, 4], [2, 3]];
const style = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function drawMarkers(u: uPlot, markers: readonly Marker[], points: ChartInput['points']): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const { x, kind } of markers) {
    const at = u.valToPos(x, 'x', true);
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.strokeStyle = style(kind === 'resume' ? '--warn' : '--muted');
    ctx.setLineDash(
      kind === 'resume' ? [2 * devicePixelRatio, 3 * devicePixelRatio] : [6 * devicePixelRatio, 3 * devicePixelRatio],
    );
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.setLineDash([]);
  ctx.fillStyle = style('--good');
  for (const { x, y } of points) {
    const [px, py, r] = [u.valToPos(x, 'x', true), u.valToPos(y, 'y', true), 5 * devicePixelRatio];
    ctx.beginPath();
    ctx.moveTo(px, py - r);
    ctx.lineTo(px + r, py);
    ctx.lineTo(px, py + r);
    ctx.lineTo(px - r, py);
    ctx.fill();
  }
  ctx.restore();
}

/** A chart in a figure; its legend shows the values at the cursor. */
export function createChart(input: ChartInput): Chart {
  let { markers, points } = input;
  const plot = h('div', { class: 'plot' });
  const latest = h('span', { class: 'latest' });
  const title = input.unit === '' ? input.title : `${input.title} (${input.unit})`;
  const element = h('figure', { class: 'chart' }, h('figcaption', null, h('span', null, title), latest), plot);
  const axis = () => ({
    stroke: style('--muted'),
    grid: { stroke: style('--line'), width: 1 },
    ticks: { stroke: style('--line'), width: 1 },
    font: '11px system-ui, sans-serif',
  });
  let shown = input.data;
  /** The values at the cursor, or the last ones. */
  function caption(idx: number | null): void {
    const at = idx ?? shown[0]!.length - 1;
    const values = input.labels.map((label, i) => {
      const value = number(shown[i + 1]![at]);
      return input.labels.length === 1 ? value : `${label} ${value}`;
    });
    latest.textContent = (idx === null ? '' : `step ${shown[0]![at]}: `) + values.join(', ');
  }
  const u = new uPlot(
    {
      width: 320,
      height,
      padding: [8, 8, 0, 0],
      cursor: { sync: { key: 'run' }, points: { size: 7 }, drag: { x: true, y: false } },
      legend: { show: input.labels.length > 1, live: false },
      scales: {
        x: { time: false, range: (_u, min, max) => [Math.min(0, min), Math.max(max, min + 1)] },
        // Evaluation points count for the range too: they may lie outside the line.
        y: {
          range: (_u, min, max) => {
            const values = points.map(({ y }) => y);
            const [low, high] = [Math.min(min ?? 0, ...values, 0), Math.max(max ?? 1, ...values)];
            return [low, high + (high - low || 1) * 0.06];
          },
        },
      },
      axes: [
        { ...axis(), size: 26, space: 50, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
        { ...axis(), size: 54, values: (_u, splits) => axisNumbers(splits) },
      ],
      series: [
        { label: 'step' },
        ...input.labels.map((label, i) => ({
          label,
          stroke: style(`--series-${i + 1}`),
          width: 1.5,
          dash: dashes[i % dashes.length]!,
          spanGaps: false,
          points: { show: input.data[0]!.length < 3 },
          value: (_u: uPlot, value: number | null) => number(value),
        })),
      ],
      hooks: {
        draw: [(chart) => drawMarkers(chart, markers, points)],
        setCursor: [(chart) => caption(chart.cursor.idx ?? null)],
      },
    },
    input.data as uPlot.AlignedData,
    plot,
  );
  u.over.addEventListener('click', () => {
    const step = u.cursor.idx === null || u.cursor.idx === undefined ? undefined : u.data[0][u.cursor.idx];
    if (step !== undefined) input.onStep(step);
  });
  const observer = new ResizeObserver(() => {
    if (plot.clientWidth > 0) u.setSize({ width: plot.clientWidth, height });
  });
  observer.observe(plot);

  function describe(data: (number | null)[][]): void {
    shown = data;
    const values = input.labels.map((label, i) => `${label} ${number(data[i + 1]!.at(-1))}`);
    plot.setAttribute('role', 'img');
    plot.setAttribute('aria-label', `${title} over ${data[0]!.length} steps; last: ${values.join(', ')}`);
    caption(null);
  }
  describe(input.data);

  return {
    element,
    update(data, nextMarkers, nextPoints) {
      markers = nextMarkers;
      points = nextPoints;
      describe(data);
      u.setData(data as uPlot.AlignedData);
    },
    destroy() {
      observer.disconnect();
      u.destroy();
    },
  };
}
