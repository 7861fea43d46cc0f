// The evidence that a journal names: checked before a run goes on, and what is not named is set aside.
// Not the journal's own chain (journal.ts). Invariant: nothing is deleted and nothing unnamed is trusted.
import { checkpointFolder, newestVerified, type VerifiedCheckpoint, verifyCheckpoint } from '../checkpoint.ts';
import { effectiveEntries, type Journal, readJournal, requirePrefix } from '../journal.ts';
import type { JournalEntry, MovedAside } from '../journal-events.ts';
import { CheckpointError } from '../lib/errors.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import { moveToRecovery, type Storage } from '../lib/storage.ts';
import type { ResolvedRunConfig } from '../run-config.ts';

export interface NamedFile {
  file: string;
  sha256: string;
  /** Where the journal names it. */
  entry: number;
}

/** Every file that the entries name, in the order of the journal. */
export function namedFiles(entries: readonly JournalEntry[]): NamedFile[] {
  return entries.flatMap((entry) => {
    const files =
      entry.kind === 'stage-end'
        ? entry.data.files
        : entry.kind === 'evaluation'
          ? [entry.data.result, ...(entry.data.rollouts ? [entry.data.rollouts] : [])]
          : [];
    return files.map(({ file, sha256 }) => ({ file, sha256, entry: entry.index }));
  });
}

/** The problem with a named file in words, or null. */
export async function evidenceProblem(storage: Storage, { file, sha256, entry }: NamedFile): Promise<string | null> {
  const found = (await storage.exists(file))
    ? `SHA-256 ${await sha256HexAsync(await storage.read(file))}`
    : 'no such file';
  if (found === `SHA-256 ${sha256}`) return null;
  return `${storage.label}/${file}: found ${found}; wanted SHA-256 ${sha256}, as line ${entry + 1} of the journal says`;
}

/**
 * Refuses to go on with completed evidence that is not as it was journaled. Throws CheckpointError
 * `evidence-changed`.
 */
export async function requireEvidence(storage: Storage, entries: readonly JournalEntry[]): Promise<void> {
  for (const named of namedFiles(entries)) {
    const problem = await evidenceProblem(storage, named);
    if (problem === null) continue;
    throw new CheckpointError(
      'evidence-changed',
      `verifying ${problem}. Restore the file; completed evidence is never made again.`,
    );
  }
}

/** Moves what lies at `paths` to recovery/ and journals it. Paths that do not exist are passed over. */
export async function setAsidePaths(
  storage: Storage,
  journal: Journal,
  paths: readonly string[],
  reason: string,
): Promise<MovedAside[]> {
  const moved: MovedAside[] = [];
  for (const path of paths) {
    if (await storage.exists(path)) moved.push({ from: path, to: await moveToRecovery(storage, path), reason });
  }
  if (moved.length > 0) await journal.append({ kind: 'recovery', data: { moved } });
  return moved;
}

/** Files of a folder that no entry names. */
export async function unnamed(storage: Storage, entries: readonly JournalEntry[], folder: string): Promise<string[]> {
  const named = new Set(namedFiles(entries).map(({ file }) => file));
  const paths = (await storage.list(folder)).map(({ name }) => `${folder}/${name}`);
  return paths.filter((path) => !named.has(path));
}

/**
 * Checks a training folder before it is gone on with, and says which of its files are past the newest sealed step. All
 * that a resume would trust must belong to this very run. Throws CheckpointError: `other-run`, `other-config`,
 * `journal-prefix` and those of the journal.
 */
export async function checkTraining(
  training: Storage,
  run: ResolvedRunConfig,
): Promise<{ step: number; unsealed: string[] }> {
  const { entries } = await readJournal(training, 'journal.jsonl');
  const { checkpoint } = await newestVerified(training);
  if (checkpoint) requireOwn(training, entries, checkpoint, run);
  const step = checkpoint?.state.step ?? 0;
  const files = (await training.list('rollouts')).map(({ name }) => name);
  const later = files.filter((name) => !(stepOf(name) <= step));
  return { step, unsealed: later.map((name) => `rollouts/${name}`) };
}

const stepOf = (name: string) => Number(/^step-(\d+)\.jsonl$/.exec(name)?.[1] ?? Number.NaN);

function requireOwn(
  training: Storage,
  entries: readonly JournalEntry[],
  { folder, state }: VerifiedCheckpoint,
  run: ResolvedRunConfig,
): void {
  const label = `${training.label}/${folder}`;
  const runId = run.sha256.slice(0, 16);
  if (state.runId !== runId || state.planSha256 !== run.sha256) {
    throw new CheckpointError(
      'other-run',
      `resuming from ${label}: found a checkpoint of run ${state.runId} (configuration ${state.planSha256}); wanted ` +
        `run ${runId} (${run.sha256}). Move it out of this run's folder; the older checkpoints stay usable.`,
    );
  }
  requirePrefix(entries, state.journal, label);
}

/** The sealed checkpoint of a step, which must hold the adapter that the training's journal names for that step. */
export async function sealedStep(
  training: Storage,
  entries: readonly JournalEntry[],
  step: number,
): Promise<{ folder: string; sealSha256: string; adapterSha256: string }> {
  const checkpoint = await verifyCheckpoint(training, checkpointFolder(step));
  const adapterSha256 = await sha256HexAsync(checkpoint.files['adapter_model.safetensors']);
  const entry = effectiveEntries(entries).findLast((one) => one.kind === 'step' && one.data.step === step);
  const journaled = entry?.kind === 'step' ? entry.data.adapterSha256 : 'no such step';
  if (journaled !== adapterSha256) {
    throw new CheckpointError(
      'other-adapter',
      `opening ${training.label}/${checkpoint.folder}: found an adapter with SHA-256 ${adapterSha256}; wanted ` +
        `${journaled}, as the training's journal says of step ${step}. Restore the checkpoint.`,
    );
  }
  return { folder: checkpoint.folder, sealSha256: checkpoint.sealSha256, adapterSha256 };
}
