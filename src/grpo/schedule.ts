// The learning rate of each optimizer step, on the host in f64.
// Not the optimizer: bias corrections are in src/kernels/adamw-reference.ts.
// Invariant: the rate of step k depends on (k, N, base, kind) alone, so a resumed run has the same one.
import { PlanError } from '../lib/errors.ts';

export interface Schedule {
  kind: 'linear' | 'constant';
  /** Learning rate of step 1. */
  base: number;
  /** Optimizer steps of the whole run, not of this process. */
  totalSteps: number;
}

/**
 * Learning rate of step k (1-based) of N: linear is base * ((N - (k - 1)) / N), so the first step has the full rate and
 * the last base / N (transformers' `linear` without warm-up, in its order of operations). Throws PlanError for a step
 * outside 1..N.
 */
export function learningRate(step: number, { kind, base, totalSteps }: Schedule): number {
  if (!(Number.isInteger(step) && step >= 1 && step <= totalSteps))
    throw new PlanError(
      'schedule-step',
      `computing the learning rate: step ${step} of ${totalSteps}; steps are 1..${totalSteps}. Resume with the plan ` +
        'that the run was started with.',
    );
  return kind === 'constant' ? base : base * ((totalSteps - (step - 1)) / totalSteps);
}
