// Writes a merged model as a Hugging Face folder on disk, with merge-audit.json.
// Not a checkpoint writer of training. Invariant: the output folder appears whole or not at all: everything is written
// to a temporary folder beside it, synced, and renamed; a folder that is already there is never touched.
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { fileFault } from '../model/file-fault.ts';
import { folderSource } from '../model/file-source-node.ts';
import type { Adapter } from '../model/lora.ts';
import type { ModelFiles } from '../model/model-files.ts';
import { treeSha256 } from '../model/tree-hash-node.ts';
import { mergeAdapter } from './merge.ts';
import type { MergeAudit, MergeProbe } from './merge-audit.ts';

export const MERGE_AUDIT = 'merge-audit.json';

/**
 * The audit with the tree hash (tree-hash.ts) of every file of the folder but merge-audit.json itself, and the figures
 * of the probe set; null where they were not measured.
 */
export type WrittenMergeAudit = MergeAudit & { treeSha256: string; probe: MergeProbe | null };

/**
 * Merges into the new folder `output`. `probe` measures the merged folder before it gets its name; a changed answer
 * makes the verdict `not equivalent`. Throws ModelFileError if `output` exists. A failure leaves nothing behind.
 */
export async function mergeToFolder(
  files: ModelFiles,
  adapter: Adapter,
  output: string,
  probe?: (merged: string) => Promise<MergeProbe>,
): Promise<WrittenMergeAudit> {
  const target = resolve(output);
  refuseExisting(target);
  const parent = dirname(target);
  await mkdir(parent, { recursive: true });
  const temporary = await mkdtemp(join(parent, `.${basename(target)}-`));
  // mkdtemp makes a private folder; the merged model gets the mode of any new folder.
  await chmod(temporary, 0o777 & ~process.umask());
  try {
    const put = (name: string, chunks: AsyncIterable<Uint8Array>) => writeSynced(join(temporary, name), chunks);
    const audit = await mergeAdapter(files, adapter, { put });
    const tree = await treeSha256(folderSource(temporary));
    const probed = (await probe?.(temporary)) ?? null;
    const verdict = probed !== null && probed.answersChanged > 0 ? ('not equivalent' as const) : audit.verdict;
    const written = { ...audit, verdict, treeSha256: tree, probe: probed };
    await writeSynced(join(temporary, MERGE_AUDIT), [
      new TextEncoder().encode(`${JSON.stringify(written, null, 2)}\n`),
    ]);
    await syncFolder(temporary);
    refuseExisting(target);
    await rename(temporary, target);
    await syncFolder(parent);
    return written;
  } catch (error) {
    await rm(temporary, { recursive: true, force: true });
    throw error;
  }
}

function refuseExisting(target: string): void {
  if (!existsSync(target)) return;
  throw fileFault('output-exists', {
    doing: `writing the merged model ${target}`,
    found: 'something of that name',
    wanted: 'a name that is free',
    remedy: 'Choose another output folder, or remove this one.',
  });
}

async function writeSynced(path: string, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
  const handle = await open(path, 'wx');
  try {
    for await (const chunk of chunks) await handle.writeFile(chunk);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
