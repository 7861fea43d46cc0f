// The progress of a run as lines, with the time that the work in hand will still take at the pace of late. Not the
// record: that is the journal. Invariant: an estimate covers only work whose pace was seen, and says of what it is.
import type { TrainProgress } from '../workers/train-node.ts';
import { formatDuration } from './duration.ts';
import type { Progress } from './progress.ts';

/** Steps that an estimate is taken over: the length of answers changes as a policy learns. */
const recentSteps = 10;

/** Metrics of a step's line, where the run has them. */
const shownMetrics = [
  'reward',
  'rewards/strict/mean',
  'loss',
  'kl',
  'grad_norm',
  'completions/mean_length',
  'step_time',
];

function stepLine(step: number, steps: number, metrics: Readonly<Record<string, number>>): string {
  const shown = shownMetrics.flatMap((name) => {
    const value = metrics[name];
    return value === undefined ? [] : [`${name} ${Number(value.toPrecision(4))}`];
  });
  return [`step ${step}/${steps}`, ...shown].join('  ');
}

/** Shows a line a step, and the rollouts of the step in hand. From the second step on a line says how much is left. */
export function runProgress(progress: Progress): TrainProgress {
  let times: number[] = [];
  return {
    onStep(step, steps, metrics) {
      // The branches of a qualification begin again at their first step.
      if (step === 1) times = [];
      times = [...times, metrics['step_time'] ?? Number.NaN].slice(-recentSteps);
      const mean = times.reduce((sum, seconds) => sum + seconds, 0) / times.length;
      const left = (steps - step) * mean;
      const known = times.length > 1 && left >= 1;
      progress.line(stepLine(step, steps, metrics) + (known ? `  about ${formatDuration(left)} left` : ''));
    },
    onRollout: (step, finished, total) => progress.update(`step ${step}: ${finished}/${total} rollouts`),
    onNote: (note) => progress.line(note),
  };
}

/**
 * Shows how far an evaluation is and, from a quarter of it on, how long it will still take: samples end together in
 * waves, and the last ones are the long ones, so less than that says nothing. `now` in milliseconds.
 */
export function evaluationProgress(progress: Progress, now: () => number) {
  let current = { unit: '', began: 0 };
  return (unit: string, finished: number, total: number): void => {
    if (unit !== current.unit) current = { unit, began: now() };
    const seconds = (now() - current.began) / 1000;
    const left = (seconds * (total - finished)) / finished;
    const known = finished >= total / 4 && left >= 1;
    const estimate = known ? `, about ${formatDuration(left)} left of it` : '';
    progress.update(`${unit}: ${finished}/${total} samples${estimate}`);
  };
}
