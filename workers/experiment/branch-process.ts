// One process of the resume qualification: takes one order from its parent, runs a training in a folder, and answers.
// Not the comparison. Invariant: it ends with its parent, so that no left-over process writes beside a later attempt.
import type { EnvironmentChoice } from '../../src/environments/service/choice.ts';
import { errorToPlain, type PlainError } from '../../src/lib/errors.ts';
import { resolveRunConfig } from '../../src/run-config.ts';
import { trainRun } from '../train-node.ts';

export interface BranchOrder {
  /** JSON of a resolved run configuration. */
  config: string;
  folder: string;
  resume: boolean;
  /** Ask to stop after this step. */
  stopAfter: number | null;
  /** In process by default. */
  environment?: EnvironmentChoice;
}

export type BranchNotice =
  | { notice: 'step'; step: number; steps: number; metrics: Record<string, number> }
  | { notice: 'rollout'; step: number; finished: number; total: number }
  | { notice: 'done'; steps: number }
  | { notice: 'failed'; error: PlainError };

const send = (notice: BranchNotice) => process.send?.(notice);

// The parent decides when a branch stops: a signal to the whole process group reaches it too.
process.on('SIGTERM', () => {});
process.on('SIGINT', () => {});
process.on('disconnect', () => process.exit(1));

process.once('message', async ({ config, folder, resume, stopAfter, environment }: BranchOrder) => {
  try {
    const outcome = await trainRun(await resolveRunConfig(config, 'the qualification'), {
      resume,
      folder,
      ...(environment ? { environment } : {}),
      shouldStop: (step) => stopAfter !== null && step >= stopAfter,
      progress: {
        onStep: (step, steps, metrics) => send({ notice: 'step', step, steps, metrics }),
        onRollout: (step, finished, total) => send({ notice: 'rollout', step, finished, total }),
      },
    });
    send({ notice: 'done', steps: outcome.steps });
  } catch (error) {
    send({ notice: 'failed', error: errorToPlain(error) });
  }
});
