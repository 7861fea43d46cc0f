// `shaderl queue`: runs the second arm of an experiment when the first one has released the GPU.
import type { Command } from 'commander';
import { addCommand, numberOption } from '../command.ts';
import { interruptible } from '../interrupt.ts';
import type { OpenSession } from '../main.ts';
import { evaluationProgress, runProgress } from '../run-progress.ts';
import { factLines } from '../table.ts';

interface QueueOptions {
  json?: boolean;
  after: string;
  plan: string;
  check?: boolean;
  resume?: boolean;
  wait?: number;
}

export function addQueue(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'queue',
    summary: 'run the second arm of an experiment after the first has released the GPU',
    details:
      'Waits until the journal of the first arm has its terminal entry (finished, or its budget spent) and its lock is ' +
      'released, then runs the second one, whose plan must be matched to the first by its SHA-256. Reads the first ' +
      "arm's folder and never writes to it. --check validates both plans and tells where the first arm stands, " +
      'without a device, a service or waiting. SIGTERM or Ctrl-C stops it as `shaderl run`. Exit code 1 if --wait ran out.',
    examples: [
      'shaderl queue --after runs/first/plan.json --plan runs/second/plan.json --check',
      'shaderl queue --after runs/first/plan.json --plan runs/second/plan.json --resume',
    ],
  })
    .requiredOption('--after <file>', 'plan.json of the first arm')
    .requiredOption('--plan <file>', 'plan.json of the second arm')
    .option('--check', 'validate only')
    .option('--resume', 'go on with a second arm that was interrupted')
    .addOption(numberOption('--wait <seconds>', 'most seconds to wait (default: no limit)', { min: 0 }))
    .action(async (options: QueueOptions) => {
      const session = openSession(options);
      const { progress } = session;
      const { checkQueue, runQueue } = await import('../../workers/experiment/queue-node.ts');
      const { after, plan, check, resume, wait } = options;
      const outcome = check
        ? await checkQueue({ after, plan })
        : await interruptible(progress, (stopRequested) =>
            runQueue({
              after,
              plan,
              waitSeconds: wait ?? null,
              run: {
                resume: resume === true,
                stopRequested,
                progress: {
                  ...runProgress(progress),
                  onStage: (stage, state) => progress.line(`stage ${stage} ${state}`),
                  onEvaluation: evaluationProgress(progress, () => performance.now()),
                },
              },
            }),
          );
      const { status, after: first, run } = outcome;
      session.result(
        check ? { ...outcome, status: 'checked' } : outcome,
        factLines([
          ['first arm', `${first.folder} (${first.arm}): ${first.state}`],
          ['second arm', `${outcome.plan.folder} (${outcome.plan.arm})`],
          ['status', check ? (first.released ? 'valid; it may start' : 'valid; it has to wait') : status],
          ...(run ? [['charged', `${run.chargedSeconds} s`] as const] : []),
        ]),
      );
      if (!check && (status === 'waiting' || status === 'budget-spent')) session.fail(1);
    });
}
