// `shaderl merge`: writes a base model and its adapter as one checkpoint, with the audit of what was rounded.
import type { Command } from 'commander';
import type { MergeProbe } from '../../src/export/merge-audit.ts';
import { DeviceError } from '../../src/lib/errors.ts';
import type { LoadedAdapter } from '../../src/model/adapter-files.ts';
import type { ModelFiles } from '../../src/model/model-files.ts';
import { addCommand } from '../command.ts';
import type { OpenSession } from '../main.ts';
import { factLines } from '../table.ts';

interface MergeOptions {
  json?: boolean;
  model: string;
  adapter: string;
  output: string;
  probe: boolean;
}

export function addMerge(program: Command, openSession: OpenSession): void {
  addCommand(program, {
    name: 'merge',
    summary: 'write a model and its adapter as one checkpoint',
    details:
      'The output folder must not exist; it appears whole or not at all, with merge-audit.json, which says for every ' +
      'tensor what rounding to the dtype of the base model did, and how greedy answers and log-probs changed on a ' +
      'fixed probe set (docs/audit.md). The verdict is "not equivalent" if too much of the update was lost or an ' +
      'answer changed.',
    examples: ['shaderl merge --model ~/models/Qwen3-0.6B --adapter runs/a/checkpoints/step-000064 --output merged'],
  })
    .requiredOption('--model <dir>', 'folder of the base model')
    .requiredOption('--adapter <dir>', 'folder of the PEFT LoRA adapter')
    .requiredOption('--output <dir>', 'folder to make')
    .option('--no-probe', 'open no device: leave out answers and log-probs on the probe set')
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
      const probe = options.probe ? await openProbe(options.model, files, adapter) : undefined;
      const audit = await mergeToFolder(files, adapter, options.output, probe);
      session.result({ output: options.output, ...audit }, mergeText(options.output, audit));
    });
}

/** The probe of the merged folder; loads nothing until it is called. */
async function openProbe(model: string, files: ModelFiles, adapter: LoadedAdapter) {
  const { openPolicy } = await import('../../src/model/open-node.ts');
  const { findAdapter } = await import('../../src/gpu/device.ts');
  if ((await findAdapter()) === null) {
    throw new DeviceError(
      'no-adapter',
      'probing the merge: found no Vulkan adapter that Dawn accepts; wanted one for answers and log-probs on the probe ' +
        'set. Run ./setup.sh, which installs a software adapter, or give --no-probe. Nothing was written.',
    );
  }
  const { probeMerge } = await import('../../workers/merge-probe-node.ts');
  const { text } = await openPolicy(model, null);
  return (merged: string) => probeMerge(files, adapter, merged, text);
}

type Audit = Awaited<ReturnType<typeof import('../../src/export/merge-node.ts').mergeToFolder>>;

function mergeText(output: string, { totals, verdict, scale, rank, treeSha256, probe }: Audit): string {
  const facts = factLines([
    ['wrote', output],
    ['adapter', `rank ${rank}, scale ${scale}`],
    ['changed', `${(100 * totals.changedShare).toFixed(2)} % of ${totals.elements} elements`],
    ['lost', `relative error of the update ${totals.relativeDeltaError.toExponential(2)}`],
    ['answers', probe ? `${probe.answersChanged} of ${probe.prompts} changed on the probe set` : 'not measured'],
    ['log-probs', probe ? probeText(probe) : 'not measured'],
    ['verdict', verdict],
    ['tree SHA-256', treeSha256],
  ]);
  const warning =
    'warning: rounding to the dtype of the base model changed the adapted model; evaluate the merged model before ' +
    'use, or keep the two apart';
  return verdict === 'equivalent' ? facts : `${facts}\n\n${warning}`;
}

function probeText({ meanLogprobChange, maxLogprobChange, meanAdapterEffect, tokens }: MergeProbe): string {
  const [mean, most, effect] = [meanLogprobChange, maxLogprobChange, meanAdapterEffect].map((x) => x.toExponential(2));
  return `changed by ${mean} nats on average, ${most} at most, over ${tokens} tokens; the adapter itself by ${effect}`;
}
