// A run made of files that were dropped on the page or picked: no server, nothing is sent anywhere.
// Not a copy: files stay where they are and are read in ranges. Invariant: each file is recognised by its name and
// content, and one that is not is named.

import { parseEvaluation } from '../src/evaluation/results.ts';
import { blobFile } from '../src/inspect/byte-file.ts';
import { followJournal } from '../src/inspect/follow-journal.ts';
import { indexRollouts } from '../src/inspect/line-index.ts';
import { searchRollouts } from '../src/inspect/search-text.ts';
import { loadText } from '../src/model/text.ts';
import { runConfigSchema } from '../src/run-config.ts';
import { createEmitter } from './dom.ts';
import { embeddedText, tokenBytes } from './embedded-text.ts';
import { pickedSource } from './picked-source.ts';
import { addRows, type RunSource } from './run-source.ts';

const tokenizerNames = /^(tokenizer(_config)?\.json|chat_template\.jinja|generation_config\.json|config\.json)$/;

/** Files that are read whole: a journal of 5,000 steps has some ten MiB. */
const mostWhole = 256 * 2 ** 20;

function requireSize({ name, size }: File): void {
  if (size <= mostWhole) return;
  throw new Error(
    `found ${(size / 2 ** 20).toFixed(0)} MiB; wanted at most ${mostWhole / 2 ** 20} MiB in a file that is read whole. ` +
      `Drop rollouts (.jsonl), which may be of any size, or open the run's folder with \`shaderl inspect\` in place of ${name}.`,
  );
}

export interface DroppedRun {
  source: RunSource;
  /** Takes more files in; what they are is told by name and content. */
  add(files: readonly File[]): Promise<void>;
}

/** A run without files yet. */
export function createDropped(name: string): DroppedRun {
  const kept = new Map<string, File>();
  const source: RunSource = {
    name,
    label: 'dropped files',
    config: null,
    journal: [],
    experiment: null,
    faults: [],
    evaluations: [],
    checkpoints: [],
    files: new Map(),
    loading: false,
    text: null,
    textNote: 'no tokenizer.json was dropped',
    changed: createEmitter(),
    readLine: async (file, row) => (kept.get(file) ?? new Blob()).slice(row.offset, row.offset + row.bytes).text(),
    readEvaluation: async (path) => (await kept.get(path)?.text()) ?? '',
    async *search(wanted) {
      const bytesOf = tokenBytes(source.text ?? (await embeddedText()));
      for (const file of source.files.keys()) {
        const matches = await searchRollouts(blobFile(file, kept.get(file)!), wanted, bytesOf);
        if (matches.length > 0) yield { file, matches };
      }
    },
    adapterFiles: () => null,
  };

  async function take(file: File): Promise<void> {
    const rollouts = file.name.endsWith('.jsonl') && !file.name.includes('journal');
    if (!rollouts) requireSize(file);
    if (file.name.endsWith('.jsonl') && file.name.includes('journal')) {
      const follower = followJournal(file.name);
      await follower.update(new Uint8Array(await file.arrayBuffer()));
      source.journal = [...follower.entries];
      if (follower.fault !== null) source.faults.push(follower.fault);
    } else if (rollouts) {
      addRows(source, { file: file.name, rows: await indexRollouts(blobFile(file.name, file)) });
    } else if (file.name === 'run-config.json') {
      source.config = runConfigSchema.parse(JSON.parse(await file.text()));
    } else if (tokenizerNames.test(file.name)) {
      const files = [...kept.values()].filter((one) => tokenizerNames.test(one.name));
      if (!files.some((one) => one.name === 'tokenizer.json')) return;
      source.text = await loadText(pickedSource('the dropped tokenizer', files));
      source.textNote = 'the dropped tokenizer.json';
    } else if (file.name.endsWith('.json')) {
      parseEvaluation(await file.text(), file.name);
      source.evaluations.push(file.name);
    } else {
      source.faults.push(
        `reading ${file.name}: found a file of no known kind; wanted rollouts or a journal (.jsonl), an evaluation, ` +
          'run-config.json or a tokenizer. Drop one of these.',
      );
    }
  }

  return {
    source,
    async add(files) {
      source.loading = true;
      for (const file of files) kept.set(file.name, file);
      for (const file of files) {
        // One file that cannot be read is named; the others are taken all the same.
        await take(file).catch((error: Error) => source.faults.push(`reading ${file.name}: ${error.message}`));
        source.changed.emit();
      }
      source.loading = false;
      source.changed.emit();
    },
  };
}
