// `shaderl run`: carries out the plan of an experiment, stage by stage.
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import { interruptible } from '../interrupt.ts';
import type { OpenSession } from '../main.ts';
import { evaluationProgress, runProgress } from '../run-progress.ts';

interface RunOptions {
  json?: boolean;
  plan: string;
  qualificationOnly?: boolean;
  resume?: boolean;
  takeLockFrom?: string;
}

const endings = {
  finished: 'all stages have passed',
  qualified: 'the qualification has passed; run again to go on',
  interrupted: 'stopped with everything sealed; run again with --resume to go on',
  'budget-spent': 'the budget is spent; nothing more is run',
} as const;

export function addRun(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'run',
    summary: 'run a prepared experiment: qualification, training, DEV, selection, final assessment, retention, report',
    details:
      'Each stage begins only if the one before passed. SIGTERM or Ctrl-C stops after the step in hand with ' +
      'everything ' +
      'sealed (exit code 0, status interrupted); --resume goes on, and is needed after any interruption. Refuses ' +
      'to run ' +
      'if one byte of the program, the inputs or the evidence changed, on another device, and beside another writer. ' +
      'An environment service that the plan names a command for is started and stopped by the run, which keeps its ' +
      'logs in service/; a service that is not the proven one is refused.',
    examples: [
      'shaderl run --plan runs/experiment/plan.json --qualification-only',
      'shaderl run --plan runs/experiment/plan.json --resume',
    ],
  })
    .requiredOption('--plan <file>', 'plan.json of the experiment, which lives in its folder')
    .option('--qualification-only', 'stop after the resume qualification')
    .option('--resume', 'go on with an experiment that was interrupted')
    .option('--take-lock-from <host>', 'declare that the process on that other host, which holds the lock, is gone')
    .action(async (options: RunOptions) => {
      const session = openSession(options);
      const { progress } = session;
      const { runPlan } = await import('../../workers/experiment-node.ts');
      const { takeLockFrom } = options;
      const outcome = await interruptible(progress, (stopRequested) =>
        runPlan({
          plan: options.plan,
          resume: options.resume === true,
          qualificationOnly: options.qualificationOnly === true,
          ...(takeLockFrom === undefined ? {} : { takeLockFrom }),
          stopRequested,
          progress: {
            ...runProgress(progress),
            onStage: (stage, state) => progress.line(`stage ${stage} ${state}`),
            onEvaluation: evaluationProgress(progress, () => performance.now()),
          },
        }),
      );
      session.result(outcome, `${endings[outcome.status]} (${outcome.chargedSeconds} s charged, ${outcome.folder})`);
      if (outcome.status === 'budget-spent') session.fail(1);
    });
}
