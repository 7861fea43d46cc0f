// `shaderl merge`: writes a base model and its adapter as one checkpoint, with the audit of what was rounded.
import type { Command } from 'commander';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { factLines } from '../table.ts';

interface MergeOptions {
  json?: boolean;
  model: string;
  adapter: string;
  output: string;
}

export function addMerge(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'merge',
    summary: 'write a model and its adapter as one checkpoint',
    details:
      'The output folder must not exist; it appears whole or not at all, with merge-audit.json, which says for every ' +
      'tensor what rounding to the dtype of the base model did.',
    examples: ['shaderl merge --model ~/models/Qwen3-0.6B --adapter runs/a/checkpoints/step-000064 --output merged'],
  })
    .requiredOption('--model <dir>', 'folder of the base model')
    .requiredOption('--adapter <dir>', 'folder of the PEFT LoRA adapter')
    .requiredOption('--output <dir>', 'folder to make')
    .action(async (options: MergeOptions) => {
      const session = openSession(options);
      const { folderSource } = await import('../../src/model/file-source-node.ts');
      const { openModelFiles } = await import('../../src/model/model-files.ts');
      const { loadAdapter } = await import('../../src/model/adapter-files.ts');
      const { mergeToFolder } = await import('../../src/export/merge-node.ts');
      const files = await openModelFiles(folderSource(options.model));
      const adapter = await loadAdapter(folderSource(options.adapter), files.architecture);
      for (const note of [...files.notes, ...adapter.notes]) session.progress.line(`note: ${note}`);
      session.progress.update(`merging into ${options.output}`);
      const audit = await mergeToFolder(files, adapter, options.output);
      session.result({ output: options.output, ...audit }, mergeText(options.output, audit));
    });
}

type Audit = Awaited<ReturnType<typeof import('../../src/export/merge-node.ts').mergeToFolder>>;

function mergeText(output: string, { totals, verdict, scale, rank, treeSha256 }: Audit): string {
  const facts = factLines([
    ['wrote', output],
    ['adapter', `rank ${rank}, scale ${scale}`],
    ['changed', `${(100 * totals.changedShare).toFixed(2)} % of ${totals.elements} elements`],
    ['lost', `relative error of the update ${totals.relativeDeltaError.toExponential(2)}`],
    ['verdict', verdict],
    ['tree SHA-256', treeSha256],
  ]);
  const warning =
    'warning: rounding to the dtype of the base model lost much of the adapter; evaluate the merged model before ' +
    'use, or keep the two apart';
  return verdict === 'equivalent' ? facts : `${facts}\n\n${warning}`;
}
