// The progress of a training run as lines. Not the record: that is the journal.
import type { TrainProgress } from '../workers/train-node.ts';
import type { Progress } from './progress.ts';

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

/** Shows a line a step, and the rollouts of the step in hand. */
export function runProgress(progress: Progress): TrainProgress {
  return {
    onStep: (step, steps, metrics) => progress.line(stepLine(step, steps, metrics)),
    onRollout: (step, finished, total) => progress.update(`step ${step}: ${finished}/${total} rollouts`),
    onNote: (note) => progress.line(note),
  };
}
