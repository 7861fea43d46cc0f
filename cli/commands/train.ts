// `shaderl train`: a GRPO run from a configuration file.
import type { Command } from 'commander';
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
}

export function addTrain(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'train',
    summary: 'train a LoRA adapter with GRPO, as a configuration file says',
    details:
      'The file is JSON or YAML with at least "model" and "output"; unknown keys are refused. The output folder gets ' +
      'the journal, the rollouts and sealed checkpoints. Ctrl-C stops after the step in hand, with everything sealed.',
    examples: ['shaderl train --config run.yaml', 'shaderl train --config run.yaml --resume'],
  })
    .requiredOption('--config <file>', 'configuration of the run')
    .option('--resume', 'go on from the newest checkpoint that verifies')
    .action(async (options: TrainOptions) => {
      const session = openSession(options);
      const { resolveRunConfig } = await import('../../src/run-config.ts');
      const text = readTextFile(options.config, 'the configuration of a run');
      const run = await resolveRunConfig(text, options.config);
      const { trainRun } = await import('../../workers/train-node.ts');
      const outcome = await interruptible(session.progress, (shouldStop) =>
        trainRun(run, { resume: options.resume === true, shouldStop, progress: runProgress(session.progress) }),
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
