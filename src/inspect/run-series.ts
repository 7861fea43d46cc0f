// A journal as the Run view shows it: curves over steps, and the points that stand on them.
// Not statistics (src/report). Invariant: what a resume went back behind is left out of the curves.
import { effectiveEntries } from '../journal.ts';
import type { JournalEntry } from '../journal-events.ts';

type StepEntry = Extract<JournalEntry, { kind: 'step' }>;
export type StepData = StepEntry['data'];

/** One line of a chart: a metric by name, or a part of a step's seconds. */
interface Line {
  label: string;
  of: (step: StepData) => number | null;
}

export interface ChartSpec {
  title: string;
  unit: string;
  lines: Line[];
}

const metric = (label: string, ...names: string[]): Line => ({
  label,
  of: ({ metrics }) => names.map((name) => metrics[name]).find((value) => value !== undefined) ?? null,
});
const seconds = (label: string, name: string): Line => ({ label, of: (step) => step.seconds[name] ?? null });

/** In the order of the view. */
export const charts: readonly ChartSpec[] = [
  { title: 'Reward', unit: '', lines: [metric('mean', 'reward'), metric('std', 'reward_std')] },
  { title: 'Strict success', unit: '', lines: [metric('share', 'rewards/strict/mean')] },
  { title: 'KL to the reference', unit: 'nats', lines: [metric('kl', 'kl')] },
  { title: 'Entropy', unit: 'nats', lines: [metric('entropy', 'entropy')] },
  { title: 'Clip fraction', unit: '', lines: [metric('clipped', 'clip_ratio/region_mean', 'clip_ratio')] },
  { title: 'Gradient norm', unit: '', lines: [metric('before clipping', 'grad_norm')] },
  {
    title: 'Length',
    unit: 'tokens',
    lines: [
      metric('mean', 'completions/mean_length'),
      metric('min', 'completions/min_length'),
      metric('max', 'completions/max_length'),
    ],
  },
  {
    title: 'Tools',
    unit: '',
    lines: [metric('calls a rollout', 'tools/call_frequency'), metric('failing share', 'tools/failure_frequency')],
  },
  {
    title: 'Step time',
    unit: 's',
    lines: [seconds('rollout', 'rollout'), seconds('audit', 'audit'), seconds('train', 'train')],
  },
];

/** [x, then one list a line], as uPlot takes it. A chart without a single value gives null. */
export function chartData(spec: ChartSpec, steps: readonly StepData[]): (number | null)[][] | null {
  const values = spec.lines.map((line) => steps.map((step) => line.of(step)));
  if (values.every((list) => list.every((value) => value === null))) return null;
  return [steps.map(({ step }) => step), ...values];
}

export interface RunPoints {
  steps: StepData[];
  checkpoints: { step: number; folder: string }[];
  evaluations: Extract<JournalEntry, { kind: 'evaluation' }>['data'][];
  resumes: { fromStep: number; time: string; skipped: number; overrides: number }[];
  /** Findings of journalled audits, by step. */
  findings: { step: number; text: string }[];
  start: Extract<JournalEntry, { kind: 'run-start' }>['data'] | null;
  end: Extract<JournalEntry, { kind: 'run-end' }>['data'] | null;
}

/** Sorts a journal's entries. */
export function runPoints(entries: readonly JournalEntry[]): RunPoints {
  const points: RunPoints = {
    steps: [],
    checkpoints: [],
    evaluations: [],
    resumes: [],
    findings: [],
    start: null,
    end: null,
  };
  for (const entry of effectiveEntries(entries)) {
    if (entry.kind === 'run-start') points.start = entry.data;
    else if (entry.kind === 'step') points.steps.push(entry.data);
    else if (entry.kind === 'checkpoint') points.checkpoints.push(entry.data);
    else if (entry.kind === 'evaluation') points.evaluations.push(entry.data);
    else if (entry.kind === 'audit') {
      points.findings.push(...entry.data.findings.map((text) => ({ step: entry.data.step, text })));
    } else if (entry.kind === 'resume') {
      const { fromStep, skipped, overrides } = entry.data;
      points.resumes.push({ fromStep, time: entry.time, skipped: skipped.length, overrides: overrides.length });
    } else if (entry.kind === 'run-end') points.end = entry.data;
  }
  return points;
}
