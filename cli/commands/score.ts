// `shaderl score`: the log-prob and entropy of every token of a given sequence.
import { type Command, Option } from 'commander';
import type { KernelFamily } from '../../src/gpu/device.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { addCommand, numberOption } from '../command.ts';
import { idsFile, readJsonFile } from '../input-files.ts';
import type { OpenSession } from '../main.ts';
import { formatBytes } from '../progress.ts';
import { textTable } from '../table.ts';

interface ScoreOptions {
  json?: boolean;
  model: string;
  adapter?: string;
  family: KernelFamily;
  ids?: string;
  text?: string;
  temperature: number;
}

export function addScore(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'score',
    summary: 'give the log-prob and entropy of every token of a sequence',
    details:
      'Teacher-forced, by the forward pass that sampling and training use. --json prints {ids, logprobs, entropy}, ' +
      'one entry for each predicted token: all but the first. Natural logs, over the whole vocabulary.',
    examples: [
      'shaderl score --model ~/models/Qwen3-0.6B --text "The capital of France is Paris."',
      'shaderl score --model ~/models/Qwen3-0.6B --ids ids.json --temperature 0.6 --json',
    ],
  })
    .requiredOption('--model <dir>', 'folder of a Hugging Face checkpoint')
    .option('--adapter <dir>', 'folder of a PEFT LoRA adapter')
    .addOption(new Option('--family <family>', 'kernel family').choices(['portable', 'matrix']).default('portable'))
    .addOption(new Option('--ids <file>', 'a JSON array of token ids').conflicts('text'))
    .option('--text <text>', 'a text, taken as it stands: no chat template')
    .addOption(numberOption('--temperature <t>', 'divides the logits', { above: 0 }, 1))
    .action(async (options: ScoreOptions) => {
      const session = openSession(options);
      const given = options.ids === undefined ? null : readJsonFile(options.ids, idsFile, 'a JSON array of token ids');
      if (given === null && options.text === undefined) {
        throw new PlanError(
          'bad-options',
          'reading the command line: found neither --ids nor --text; wanted one of them. ' +
            'Give --text "Hello world", for example.',
        );
      }
      const { openPolicy, requireText } = await import('../../src/model/open-node.ts');
      const { scoreTokens } = await import('../score-tokens.ts');
      const { openGpu } = await import('../../src/gpu/device.ts');
      const policy = await openPolicy(options.model, options.adapter ?? null);
      const text = given ? policy.text : requireText(policy);
      const ids = given?.value ?? [...text!.documentPrefixIds, ...text!.encodeContent(options.text!)];
      if (ids.length < 2) {
        throw new PlanError(
          'too-short',
          `scoring --text: found ${ids.length} tokens; wanted two or more, as the first one is never predicted. ` +
            'Give a longer text.',
        );
      }
      const gpu = await openGpu();
      try {
        const result = await scoreTokens(
          gpu,
          policy,
          options.family,
          ids,
          options.temperature,
          (done, all) => session.progress.update(`loading ${formatBytes(done)} of ${formatBytes(all)}`),
          (text) => session.progress.line(`note: ${text}`),
        );
        const rows = result.ids.map((id, i) => [
          String(i + 1),
          String(id),
          text ? JSON.stringify(text.decode([id])) : '',
          result.logprobs[i]!.toFixed(6),
          result.entropy[i]!.toFixed(6),
        ]);
        const sum = result.logprobs.reduce((total, value) => total + value, 0);
        const table = textTable(['index', 'id', 'token', 'logprob', 'entropy'], rows, [0, 1, 3, 4]);
        session.result(result, `${table}\n\nsum of log-probs ${sum.toFixed(6)} over ${rows.length} tokens`);
      } finally {
        gpu.destroy();
      }
    });
}
