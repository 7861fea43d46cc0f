// Chooses the figures of a report and writes their captions. Not the drawing: see plots-node.ts.
// Invariant: a figure is made only from recorded values; a metric that was not recorded is named in `absent`.
import { formatNumber, formatPercent, formatPoints, formatSignedPoints } from './format.ts';
import { drawIntervals, drawSteps, drawTimes, type Series, type StepPlot, type TimePart } from './plots-node.ts';
import type { ReportJson } from './schema.ts';
import { type ArmNames, BEFORE_AFTER } from './tables.ts';

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

export interface LegendEntry {
  label: string;
  colour: string;
  dash?: string;
  area?: boolean;
}

export interface Figure {
  id: string;
  title: string;
  caption: string;
  svg: string;
  legend: LegendEntry[];
}

const COLOURS = ['var(--series-1)', 'var(--series-2)', 'var(--series-3)', 'var(--series-4)'] as const;

/** Length of the moving mean: about a tenth of the run, odd, and 1 (no mean) for short runs. */
export function smoothingWindow(steps: number): number {
  return steps < 16 ? 1 : 2 * Math.floor(steps / 20) + 1;
}

/** The recorded, finite values of one metric. */
function points(report: ReportJson, metric: string): Series['points'] {
  return report.steps.flatMap(({ step, metrics }) => {
    const value = metrics[metric];
    return value !== undefined && Number.isFinite(value) ? [{ step, value }] : [];
  });
}

interface Panel {
  id: string;
  title: string;
  caption: string;
  yLabel: string;
  curves: { metric: string; label: string; dash?: string }[];
  percent?: boolean;
  yDomain?: [number, number];
  /** The values have no noise to average (a schedule). */
  exact?: boolean;
}

const LEARNING: Panel = {
  id: 'learning',
  title: 'Reward and strict success in training',
  caption:
    'Shaped reward and share of strict successes among the rollouts of each step. ' +
    'A training signal: every step has other tasks.',
  yLabel: 'mean over rollouts (%)',
  percent: true,
  yDomain: [0, 1],
  curves: [
    { metric: 'reward', label: 'shaped reward' },
    { metric: 'rewards/strict/mean', label: 'strict success', dash: '7 4' },
  ],
};

const PANELS: Panel[] = [
  {
    id: 'kl',
    title: 'KL to the reference',
    caption: 'Mean k3 estimate over sampled tokens.',
    yLabel: 'KL (nats per token)',
    curves: [{ metric: 'kl', label: 'KL' }],
  },
  {
    id: 'entropy',
    title: 'Policy entropy',
    caption: 'Mean over sampled tokens, full vocabulary, at the sampling temperature.',
    yLabel: 'entropy (nats per token)',
    curves: [{ metric: 'entropy', label: 'entropy' }],
  },
  {
    id: 'clip',
    title: 'Clip fraction',
    caption:
      'Share of sampled tokens whose ratio was clipped. ' +
      'With one iteration per batch every ratio is exactly 1, and this is 0.',
    yLabel: 'clipped tokens (%)',
    percent: true,
    curves: [{ metric: 'clip_ratio/region_mean', label: 'clip fraction' }],
  },
  {
    id: 'length',
    title: 'Completion length',
    caption: 'Sampled tokens per rollout; tool observations are not counted.',
    yLabel: 'mean length (tokens)',
    curves: [{ metric: 'completions/mean_length', label: 'mean length' }],
  },
  {
    id: 'capped',
    title: 'Capped rollouts and groups without signal',
    caption: 'Rollouts that hit the token limit, and rollouts in groups whose rewards are all equal.',
    yLabel: 'share of rollouts (%)',
    percent: true,
    yDomain: [0, 1],
    curves: [
      { metric: 'completions/clipped_ratio', label: 'capped' },
      { metric: 'frac_reward_zero_std', label: 'no reward spread', dash: '7 4' },
    ],
  },
  {
    id: 'tool-errors',
    title: 'Tool errors',
    caption: 'Share of tool calls that failed: malformed, unknown, or refused by the environment.',
    yLabel: 'failed calls (%)',
    percent: true,
    curves: [{ metric: 'tools/failure_frequency', label: 'failed calls' }],
  },
  {
    id: 'tool-calls',
    title: 'Tool calls',
    caption: 'Mean number of tool calls per rollout.',
    yLabel: 'calls per rollout',
    curves: [{ metric: 'tools/call_frequency', label: 'calls' }],
  },
  {
    id: 'grad-norm',
    title: 'Gradient norm',
    caption: 'L2 norm over all adapter parameters, before clipping.',
    yLabel: 'gradient norm',
    curves: [{ metric: 'grad_norm', label: 'gradient norm' }],
  },
  {
    id: 'learning-rate',
    title: 'Learning rate',
    caption: 'As applied at each step.',
    yLabel: 'learning rate',
    curves: [{ metric: 'learning_rate', label: 'learning rate' }],
    exact: true,
  },
];

function panelFigure(report: ReportJson, panel: Panel, height?: number): Figure | null {
  const series: Series[] = panel.curves.flatMap(({ metric, label, dash }, i) => {
    const own = points(report, metric);
    return own.length === 0
      ? []
      : [{ label, points: own, colour: COLOURS[i]!, ...(dash === undefined ? {} : { dash }) }];
  });
  if (series.length === 0) return null;
  const window = panel.exact ? 1 : smoothingWindow(report.steps.length);
  const plot: StepPlot = {
    title: panel.title,
    yLabel: panel.yLabel,
    series,
    window,
    percent: panel.percent ?? false,
    ...(height === undefined ? {} : { height }),
    ...(panel.yDomain === undefined ? {} : { yDomain: panel.yDomain }),
  };
  const drawn = window > 1 ? ` Dots: steps; line: moving mean over ${window} steps.` : '';
  return {
    id: panel.id,
    title: panel.title,
    caption: panel.caption + drawn,
    svg: drawSteps(plot),
    legend: series.length > 1 ? series.map(({ points: _points, ...entry }) => entry) : [],
  };
}

/** Reward and strict success per step, `height` units tall of 520 wide; null where neither was recorded. */
export function learningFigure(report: ReportJson, height: number): Figure | null {
  return panelFigure(report, LEARNING, height);
}

/** Rates of both arms with Wilson intervals; null without a comparison. */
export function ratesFigure(report: ReportJson, names: ArmNames = BEFORE_AFTER): Figure | null {
  const { comparison } = report;
  if (!comparison) return null;
  const rows = (['a', 'b'] as const).map((arm) => {
    const { rate, wilson, correct, samples } = comparison[arm];
    return {
      label: arm === 'a' ? names[0] : names[1],
      value: 100 * rate,
      low: wilson && 100 * wilson.low,
      high: wilson && 100 * wilson.high,
      text: `${formatPercent(rate)} (${correct} of ${samples})`,
      colour: arm === 'a' ? 'var(--muted)' : 'var(--series-2)',
      symbol: arm === 'a' ? ('square' as const) : ('circle' as const),
    };
  });
  return {
    id: 'rates',
    title: `${comparison.suite === 'agent' ? 'Strict success' : 'Correct answers'}, ${names[0]} and ${names[1]}`,
    caption:
      `${comparison.items} items, ${comparison.samples} samples per arm. ` +
      'Bars: 95\u00A0% Wilson intervals over samples.',
    svg: drawIntervals({
      title: `${comparison.measure}, ${names[0]} and ${names[1]}`,
      xLabel: `${comparison.measure} (%)`,
      rows,
      domain: [0, 100],
      zeroLine: false,
    }),
    legend: [],
  };
}

/** The paired difference with its bootstrap interval; null without a comparison. */
export function differenceFigure(report: ReportJson, names: ArmNames = BEFORE_AFTER): Figure | null {
  const { comparison } = report;
  if (!comparison) return null;
  const { difference, interval, resamples, seed } = comparison.difference;
  const reach = Math.max(0.1, ...[difference, interval?.low ?? 0, interval?.high ?? 0].map(Math.abs)) * 115;
  const end = Math.ceil(reach / 10) * 10;
  const range = interval ? ` [${formatSignedPoints(interval.low)}, ${formatSignedPoints(interval.high)}]` : '';
  return {
    id: 'difference',
    title: 'Paired difference',
    caption:
      `${capital(names[1])} minus ${names[0]} on the same items: ${comparison.wins} won, ${comparison.losses} lost, ` +
      `${comparison.ties} equal. ` +
      `Bar: 95\u00A0% percentile interval, ${formatNumber(resamples)} resamples of items, seed ${seed}.`,
    svg: drawIntervals({
      title: 'Paired difference with its interval',
      xLabel: 'difference (percentage points)',
      rows: [
        {
          label: 'difference',
          value: 100 * difference,
          low: interval && 100 * interval.low,
          high: interval && 100 * interval.high,
          text: `${formatPoints(difference)}${range}`,
          colour: 'var(--series-2)',
          symbol: 'diamond',
        },
      ],
      domain: [-end, end],
      zeroLine: true,
    }),
    legend: [],
  };
}

function timesFigure(report: ReportJson): Figure | null {
  const named: TimePart[] = [
    { label: 'rollout', colour: COLOURS[0], points: points(report, 'time/rollout') },
    { label: 'audit', colour: COLOURS[2], points: points(report, 'time/audit') },
    { label: 'train', colour: COLOURS[1], points: points(report, 'time/train') },
  ];
  const parts = named.filter((part) => part.points.length > 0);
  const totals = points(report, 'step_time');
  if (parts.length === 0 && totals.length === 0) return null;
  const known = new Map<number, number>();
  for (const p of parts.flatMap((part) => part.points)) known.set(p.step, (known.get(p.step) ?? 0) + p.value);
  const rest = totals.map(({ step, value }) => ({ step, value: Math.max(0, value - (known.get(step) ?? 0)) }));
  if (rest.some((p) => p.value > 0.01)) {
    parts.push({ label: parts.length === 0 ? 'step' : 'other', colour: COLOURS[3], points: rest });
  }
  return {
    id: 'times',
    title: 'Where the time goes',
    caption: `Wall-clock seconds of each step, stacked; from the bottom: ${parts.map((p) => p.label).join(', ')}.`,
    svg: drawTimes('Time per step, split', parts),
    legend: parts.map(({ label, colour }) => ({ label, colour, area: true })),
  };
}

/** The figures of the training section, and the titles of those for which nothing was recorded. */
export function trainingFigures(report: ReportJson): { figures: Figure[]; absent: string[] } {
  const made = [
    ...PANELS.map((panel) => [panel.title, panelFigure(report, panel)] as const),
    ['Where the time goes', timesFigure(report)] as const,
  ];
  return {
    figures: made.flatMap(([, figure]) => figure ?? []),
    absent: made.flatMap(([title, figure]) => (figure ? [] : [title])),
  };
}
