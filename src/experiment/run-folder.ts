// What is wrong with the folder of a run, by its own journal: configuration, rollouts, sealed checkpoints.
// Not the strict audit of the rollouts (audit-node.ts) and not a comparison of two runs (compare-branches.ts). Pure but
// for what it reads. Invariant: a finding names the file, what was found and what was wanted.
import { CHECKPOINTS_FOLDER, verifyCheckpoint } from '../checkpoint.ts';
import { effectiveEntries, type JournalReading, readJournal } from '../journal.ts';
import type { JournalEntry } from '../journal-events.ts';
import { ShaderlError } from '../lib/errors.ts';
import type { Storage } from '../lib/storage.ts';
import { resolveRunConfig } from '../run-config.ts';
import { evidenceProblem } from './evidence.ts';

const JOURNAL = 'journal.jsonl';
const CONFIG = 'run-config.json';

type Entry<K extends JournalEntry['kind']> = Extract<JournalEntry, { kind: K }>;

/** A finding about bytes behind the last whole line of a journal that nobody writes to, or none. */
export function tornFinding({ tail, position }: JournalReading, label: string): string[] {
  if (tail.length === 0) return [];
  return [
    `${label}: found ${tail.length} bytes after line ${position.lines} that are no whole line; wanted none. A crash ` +
      'leaves such bytes, which `run --resume` sets aside; otherwise the end of the journal was changed: restore it',
  ];
}

/** The bytes of run-config.json are those that its own configuration is written with, which the journal names. */
async function configFindings(storage: Storage, start: Entry<'run-start'>): Promise<string[]> {
  const label = `${storage.label}/${CONFIG}`;
  const text = await storage.readText(CONFIG);
  const { config, sha256 } = await resolveRunConfig(text, label);
  if (sha256 !== start.data.planSha256) {
    return [
      `${label}: found a configuration with SHA-256 ${sha256}; wanted ${start.data.planSha256}, as its journal says`,
    ];
  }
  if (text === `${JSON.stringify(config, null, 2)}\n`) return [];
  return [`${label}: found the configuration in another spelling; wanted the bytes that the run wrote`];
}

/** Every checkpoint of the folder verifies, and one that the journal names has the seal that it names. */
async function sealFindings(storage: Storage, entries: readonly JournalEntry[]): Promise<string[]> {
  const sealed = new Map<string, string | undefined>();
  for (const { name, kind } of await storage.list(CHECKPOINTS_FOLDER)) {
    if (kind === 'folder' && /^step-\d{6,}$/.test(name)) sealed.set(`${CHECKPOINTS_FOLDER}/${name}`, undefined);
  }
  for (const entry of entries) if (entry.kind === 'checkpoint') sealed.set(entry.data.folder, entry.data.sealSha256);
  const found: string[] = [];
  for (const [folder, sealSha256] of sealed) {
    await verifyCheckpoint(storage, folder, sealSha256).catch((error: unknown) => {
      if (!(error instanceof ShaderlError)) throw error;
      found.push(error.message);
    });
  }
  return found;
}

/**
 * Findings in a run's folder. With `open`, the run has not ended: rollouts of steps after its newest checkpoint, and a
 * torn last line, are what a kill leaves. A folder without a journal has none. Throws CheckpointError for a journal that
 * was altered, PlanError for an unreadable run-config.json.
 */
export async function runFolderFindings(storage: Storage, options: { open: boolean }): Promise<string[]> {
  const reading = await readJournal(storage, JOURNAL);
  const entries = effectiveEntries(reading.entries);
  const start = entries.find((entry) => entry.kind === 'run-start');
  if (start?.kind !== 'run-start') return [];
  const found = [
    ...(options.open ? [] : tornFinding(reading, `${storage.label}/${JOURNAL}`)),
    ...(await configFindings(storage, start)),
  ];
  const sealed = entries.reduce((step, entry) => (entry.kind === 'checkpoint' ? entry.data.step : step), 0);
  for (const entry of entries) {
    if (entry.kind !== 'step' || (options.open && entry.data.step > sealed)) continue;
    const { file, sha256 } = entry.data.rollouts;
    const problem = await evidenceProblem(storage, { file, sha256, entry: entry.index });
    if (problem !== null) found.push(problem);
  }
  return [...found, ...(await sealFindings(storage, entries))];
}
