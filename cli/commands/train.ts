// `shaderl train`: a GRPO run from a configuration file.
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import { PlanError } from '../../src/lib/errors.ts';
import { addCommand } from '../command.ts';
import { readTextFile } from '../input-files.ts';
import { interruptible } from '../interrupt.ts';
import type { OpenSession } from '../main.ts';
import { runProgress } from '../run-progress.ts';
import { factLines } from '../table.ts';

interface TrainOptions {
  json?: boolean;
  config: string;
  resume?: boolean;
  env: 'local' | 'nemo-gym' | 'openenv';
  envUrl?: string;
}

export function addTrain(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'train',
    summary: 'train a LoRA adapter with GRPO, as a configuration file says',
    details:
      'The file is JSON or YAML with at least "model" and "output"; unknown keys are refused. The output folder gets ' +
      'the journal, the rollouts and sealed checkpoints. Ctrl-C stops after the step in hand, with everything sealed.',
    examples: [
      'shaderl train --config run.yaml',
      'shaderl train --config run.yaml --env openenv --env-url http://127.0.0.1:8000 --resume',
    ],
  })
    .requiredOption('--config <file>', 'configuration of the run')
    .option('--resume', 'go on from the newest checkpoint that verifies')
    .addOption(
      new Option('--env <arm>', 'what serves the environment: this process, or a service that is started for the run')
        .choices(['local', 'nemo-gym', 'openenv'])
        .default('local'),
    )
    .option('--env-url <url>', 'address of a service that runs already, in place of one that is started')
    .action(async (options: TrainOptions) => {
      const session = openSession(options);
      const { resolveRunConfig } = await import('../../src/run-config.ts');
      const text = readTextFile(options.config, 'the configuration of a run');
      const run = await resolveRunConfig(text, options.config);
      const { trainRun } = await import('../../workers/train-node.ts');
      const { withEnvironment } = await import('../../workers/services/run-environment.ts');
      const { env, envUrl } = options;
      if (env === 'local' && envUrl !== undefined) {
        throw new PlanError(
          'bad-options',
          'reading the command line: found --env-url with --env local; wanted a protocol. Give --env openenv, for example.',
        );
      }
      const { output, grpo } = run.config;
      const asked = {
        env,
        url: envUrl ?? null,
        sessions: grpo.groupSize * grpo.groupsPerStep,
        folder: join(output, 'service'),
        name: 'train',
      };
      const outcome = await interruptible(session.progress, (shouldStop) =>
        withEnvironment(asked, (environment) =>
          trainRun(run, {
            resume: options.resume === true,
            shouldStop,
            environment,
            progress: runProgress(session.progress),
          }),
        ),
      );
      session.result(
        outcome,
        factLines([
          ['run', outcome.output],
          ['status', outcome.status],
          ['steps', `${outcome.steps} of ${run.config.steps}`],
          ['adapter SHA-256', outcome.adapterSha256],
        ]),
      );
    });
}
