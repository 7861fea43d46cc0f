// `shaderl train`: a GRPO run from a configuration file.
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import type { OwnServiceSection } from '../../src/experiment/service.ts';
import { PlanError } from '../../src/lib/errors.ts';
import type { RunConfig } from '../../src/run-config.ts';
import type { AskedEnvironment } from '../../workers/services/run-environment.ts';
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

/** What serves the run's environment. Throws PlanError for options that contradict each other or the file. */
function askedEnvironment({ env, envUrl, config: file, resume }: TrainOptions, config: RunConfig): AskedEnvironment {
  const { output, grpo, data, service } = config;
  const refuse = (rest: string) => new PlanError('bad-options', `reading the command line: ${rest}`);
  const own = data.environment !== 'german';
  if (own && env !== 'local' && env !== data.environment) {
    const wanted = `${data.environment}, the data.environment of ${file}`;
    throw refuse(`found --env ${env}; wanted ${wanted}. Leave --env out.`);
  }
  if (!own && env === 'local' && envUrl !== undefined) {
    throw refuse('found --env-url with --env local; wanted a protocol. Give --env openenv, for example.');
  }
  return {
    env: data.environment === 'german' ? env : data.environment,
    url: envUrl ?? null,
    sessions: grpo.groupSize * grpo.groupsPerStep,
    folder: join(output, 'service'),
    name: 'train',
    ...(service
      ? { own: { section: service as OwnServiceSection, configFile: file, resumed: resume ? output : null } }
      : {}),
  };
}

export function addTrain(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'train',
    summary: 'train a LoRA adapter with GRPO, as a configuration file says',
    details:
      'The file is JSON or YAML with at least "model" and "output"; unknown keys are refused. The output folder gets ' +
      'the journal, the rollouts and sealed checkpoints. Ctrl-C stops after the step in hand, with everything sealed. ' +
      'A file whose data.environment names a protocol is trained on that service and its tasks; --env and --env-url ' +
      'say where the german task, or that service, is found.',
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
      const { openRunData } = await import('../../workers/run-data.ts');
      const asked = askedEnvironment(options, run.config);
      // Before a service is started for nothing.
      const data = openRunData(run.config);
      const outcome = await interruptible(session.progress, (shouldStop) =>
        withEnvironment(asked, (environment, service) =>
          trainRun(run, {
            resume: options.resume === true,
            shouldStop,
            environment,
            service,
            data,
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
