// `shaderl quickstart` (npm start): the whole job on the embedded policy, from checkpoint to report.
import { join } from 'node:path';
import { type Command, Option } from 'commander';
import type { KernelFamily } from '../../src/gpu/device.ts';
import type { QuickstartSummary } from '../../workers/quickstart-node.ts';
import { addCommand, numberOption, seedRange } from '../command.ts';
import { interruptible } from '../interrupt.ts';
import type { OpenSession } from '../main.ts';
import { runProgress } from '../run-progress.ts';

interface QuickstartOptions {
  json?: boolean;
  output: string;
  steps?: number;
  seed?: number;
  family?: KernelFamily;
}

export function addQuickstart(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'quickstart',
    summary: 'train the embedded policy, evaluate it before and after, and write a report',
    details:
      'Takes minutes on two CPU cores with a software adapter. Writes report.html and summary.json beside the ' +
      'journal, the rollouts and the checkpoints. A finished run in the folder is moved aside; an unfinished one goes on.',
    examples: ['shaderl quickstart', 'shaderl quickstart --output runs/try --steps 8 --seed 7'],
  })
    .option('--output <dir>', 'folder of the run', 'runs/quickstart')
    .addOption(
      numberOption('--steps <n>', 'optimizer steps (default: enough to show learning)', { min: 1, integer: true }),
    )
    .addOption(numberOption('--seed <n>', "seed of the training (default: the recipe's)", seedRange))
    .addOption(new Option('--family <family>', "kernel family (default: the recipe's)").choices(['portable', 'matrix']))
    .action(async (options: QuickstartOptions) => {
      const session = openSession(options);
      const { quickstart } = await import('../../workers/quickstart-node.ts');
      const { output, steps, seed, family } = options;
      const summary = await interruptible(session.progress, (shouldStop) =>
        quickstart({
          output,
          ...(steps === undefined ? {} : { steps }),
          ...(seed === undefined ? {} : { seed }),
          ...(family === undefined ? {} : { family }),
          shouldStop,
          progress: {
            ...runProgress(session.progress),
            onEvaluation: (name, finished, total) =>
              session.progress.update(`evaluating ${name} training: ${finished}/${total} episodes`),
          },
        }),
      );
      session.result(
        summary,
        summary
          ? quickstartText(summary, output)
          : `stopped with everything sealed; run it again to go on in ${output}`,
      );
    });
}

function quickstartText(summary: QuickstartSummary, output: string): string {
  const { before, after, paired, steps, seconds, device, audit } = summary;
  const percent = ({ strict, n }: QuickstartSummary['before']) => `${((100 * strict) / n).toFixed(1)} %`;
  const points = (value: number) => `${value >= 0 ? '+' : ''}${(100 * value).toFixed(1)}`;
  const { low, high } = paired;
  const interval = low === null || high === null ? 'no interval' : `95 % interval ${points(low)} to ${points(high)}`;
  return [
    `trained ${steps} steps in ${seconds} s on ${device}`,
    `audited ${audit.rollouts} rollouts: ${audit.findings} findings`,
    `strict success on fresh episodes: ${percent(before)} before, ${percent(after)} after (n = ${after.n} each)`,
    `paired difference: ${points(paired.difference)} points, ${interval}`,
    `report: ${join(output, 'report.html')}`,
  ].join('\n');
}
