// The record of a run: append-only JSON lines, each hashed and chained to the one before.
// Not a log for people and not a lock: one writer at a time, any number of readers, also while it is written.
// Invariant: a line that was acknowledged is on disk; a line that was altered is refused; a torn last line is set aside
// in `recovery/` and reported. An attacker who rewrites the whole chain is caught only by a seal that holds its prefix.
import {
  comparablePart,
  type JournalEntry,
  type JournalEvent,
  journalEnvelope,
  journalEvent,
  type MovedAside,
} from './journal-events.ts';
import { canonicalBytes, canonicalJson } from './lib/canonical-json.ts';
import { CheckpointError } from './lib/errors.ts';
import { sha256HexAsync } from './lib/sha256.ts';
import { freeRecoveryName, type Storage } from './lib/storage.ts';
import { issuesText } from './lib/zod-issues.ts';

/** `prev` of the first line. */
export const CHAIN_START = '0'.repeat(64);
const NEWLINE = 10;

/** How far a journal has been read: the bytes and lines consumed and the hash of the last line. */
export interface JournalPosition {
  bytes: number;
  lines: number;
  sha256: string;
}

export const JOURNAL_START: JournalPosition = { bytes: 0, lines: 0, sha256: CHAIN_START };

/** The journal as a checkpoint seals it. */
export interface JournalPrefix {
  lines: number;
  sha256: string;
}

export interface JournalReading {
  entries: JournalEntry[];
  position: JournalPosition;
  /** Bytes after the last newline: a line that is being written now, or was torn by a crash. */
  tail: Uint8Array;
}

function refused(label: string, line: number, code: string, found: string, wanted: string): CheckpointError {
  return new CheckpointError(
    code,
    `reading ${label} line ${line}: found ${found}; wanted ${wanted}. ` +
      'The journal was changed after it was written: restore it, or start a new run; nothing was trained on.',
  );
}

async function readLine(text: string, label: string, position: JournalPosition): Promise<JournalEntry> {
  const line = position.lines + 1;
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    const found = text.length > 40 ? `${text.slice(0, 40)}...` : text;
    throw refused(label, line, 'journal-syntax', JSON.stringify(found), 'one JSON object a line');
  }
  const envelope = journalEnvelope.safeParse(parsed);
  if (!envelope.success) {
    throw refused(label, line, 'journal-shape', issuesText(envelope.error, parsed), 'a journal line');
  }
  const { sha256, ...covered } = envelope.data;
  const hash = await sha256HexAsync(canonicalBytes(covered));
  if (hash !== sha256)
    throw refused(label, line, 'journal-hash', `content with sha256 ${hash}`, `${sha256}, as it says`);
  if (covered.prev !== position.sha256) {
    throw refused(
      label,
      line,
      'journal-chain',
      `prev ${covered.prev}`,
      `${position.sha256}, the hash of the line before`,
    );
  }
  if (covered.index !== position.lines) {
    throw refused(label, line, 'journal-chain', `index ${covered.index}`, `index ${position.lines}`);
  }
  // Equal hash but other bytes (spaces, key order, a repeated key) is still not what was written.
  if (text !== canonicalJson(envelope.data)) {
    throw refused(label, line, 'journal-syntax', 'JSON in another spelling', 'canonical JSON (RFC 8785)');
  }
  const { index, prev, time, kind, data } = covered;
  const event = journalEvent.safeParse({ kind, data });
  if (!event.success)
    throw refused(label, line, 'journal-shape', issuesText(event.error, { kind, data }), 'a known event');
  return { ...event.data, index, prev, time, sha256 };
}

/**
 * Verifies the lines of a journal from `position` on. `bytes` is the whole file; `label` names it in messages.
 * A follower calls it again with the position it got. Throws CheckpointError naming file, line, found and wanted hash.
 */
export async function readJournalBytes(
  bytes: Uint8Array,
  label: string,
  position: JournalPosition = JOURNAL_START,
): Promise<JournalReading> {
  if (bytes.length < position.bytes) {
    throw refused(label, position.lines, 'journal-shrunk', `${bytes.length} bytes`, `at least ${position.bytes}`);
  }
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const entries: JournalEntry[] = [];
  let at = position;
  for (let end = bytes.indexOf(NEWLINE, at.bytes); end >= 0; end = bytes.indexOf(NEWLINE, at.bytes)) {
    let text: string;
    try {
      text = decoder.decode(bytes.subarray(at.bytes, end));
    } catch {
      throw refused(label, at.lines + 1, 'journal-syntax', 'bytes that are not UTF-8', 'UTF-8 text');
    }
    const entry = await readLine(text, label, at);
    entries.push(entry);
    at = { bytes: end + 1, lines: at.lines + 1, sha256: entry.sha256 };
  }
  return { entries, position: at, tail: bytes.slice(at.bytes) };
}

/** Reads and verifies a journal without touching it; safe while another process writes. No file is an empty journal. */
export async function readJournal(
  storage: Storage,
  path: string,
  position: JournalPosition = JOURNAL_START,
): Promise<JournalReading> {
  const bytes = (await storage.exists(path)) ? await storage.read(path) : new Uint8Array(0);
  return readJournalBytes(bytes, `${storage.label}/${path}`, position);
}

export interface Journal {
  /** Every entry so far, in order. */
  readonly entries: readonly JournalEntry[];
  /** What a checkpoint seals. */
  prefix(): JournalPrefix;
  /** Resolves when the line is on disk. Calls queue up; after a failure every further call fails. */
  append(event: JournalEvent): Promise<JournalEntry>;
}

export interface OpenedJournal {
  journal: Journal;
  /** The torn last line that a crash left, moved aside; already journaled as a `recovery` event. */
  torn: MovedAside | null;
}

/** Opens a journal for writing, verifying all of it first. `now` gives the time of a line, ISO 8601 in UTC. */
export async function openJournal(storage: Storage, path: string, now: () => string): Promise<OpenedJournal> {
  const reading = await readJournal(storage, path);
  const entries = reading.entries;
  let position = reading.position;
  let queue: Promise<unknown> = Promise.resolve();

  async function appendNow(event: JournalEvent): Promise<JournalEntry> {
    const checked = journalEvent.safeParse(event);
    if (!checked.success) {
      throw new CheckpointError(
        'journal-shape',
        `appending a ${event.kind} event to ${storage.label}/${path}: ${issuesText(checked.error, event)}; ` +
          'wanted an event of the journal schema. Correct the caller; nothing was written.',
      );
    }
    const covered = { ...checked.data, index: position.lines, prev: position.sha256, time: now() };
    const entry: JournalEntry = { ...covered, sha256: await sha256HexAsync(canonicalBytes(covered)) };
    const line = new TextEncoder().encode(`${canonicalJson(entry)}\n`);
    await storage.append(path, line, position.bytes);
    position = { bytes: position.bytes + line.length, lines: position.lines + 1, sha256: entry.sha256 };
    entries.push(entry);
    return entry;
  }

  const journal: Journal = {
    entries,
    prefix: () => ({ lines: position.lines, sha256: position.sha256 }),
    append(event) {
      // A rejected queue stays rejected: a gap in the record must stop the run, not be stepped over.
      const appended = queue.then(() => appendNow(event));
      queue = appended;
      return appended;
    },
  };
  if (reading.tail.length === 0) return { journal, torn: null };

  const to = await freeRecoveryName(storage, path);
  const reason = `the last line was torn by a crash: ${reading.tail.length} bytes after line ${position.lines}`;
  // The copy is durable before the original loses it.
  await storage.write(to, reading.tail);
  await storage.write(path, (await storage.read(path)).slice(0, position.bytes));
  const torn: MovedAside = { from: path, to, reason };
  await journal.append({ kind: 'recovery', data: { moved: [torn] } });
  return { journal, torn };
}

/** What to tell somebody whose journal in `folder` had a torn last line. */
export function tornLineNote({ from, to, reason }: MovedAside, folder: string): string {
  const doing = `opening ${folder}/${from}`;
  return `${doing}: found ${reason}; wanted whole lines. It was moved to ${folder}/${to}; nothing is to be done.`;
}

/** Refuses a journal that does not begin with the lines that a checkpoint sealed. */
export function requirePrefix(entries: readonly JournalEntry[], prefix: JournalPrefix, label: string): void {
  const found = prefix.lines === 0 ? CHAIN_START : entries[prefix.lines - 1]?.sha256;
  if (found === prefix.sha256) return;
  const what = found === undefined ? `${entries.length} lines` : `sha256 ${found} at line ${prefix.lines}`;
  throw new CheckpointError(
    'journal-prefix',
    `comparing ${label} with a checkpoint: found ${what}; the checkpoint sealed ${prefix.lines} lines ending in ` +
      `${prefix.sha256}. The journal is of another run, was cut or was rewritten: restore it; nothing was trained on.`,
  );
}

/**
 * The entries that count: what a resume went back behind (steps, checkpoints, audits and evaluations after `fromStep`,
 * and the end of the stopped attempt) is left out. The journal itself keeps them.
 */
export function effectiveEntries(entries: readonly JournalEntry[]): JournalEntry[] {
  let kept: JournalEntry[] = [];
  for (const entry of entries) {
    if (entry.kind === 'resume') {
      const { fromStep } = entry.data;
      kept = kept.filter(
        (old) => old.kind !== 'run-end' && (!('step' in old.data) || (old.data.step ?? 0) <= fromStep),
      );
    }
    kept.push(entry);
  }
  return kept;
}

/** SHA-256 that two runs of one plan share if they did the same: of the effective entries' `comparablePart`s. */
export async function journalDigestWithoutTimings(entries: readonly JournalEntry[]): Promise<string> {
  const parts = effectiveEntries(entries)
    .map(comparablePart)
    .filter((part) => part !== null);
  return sha256HexAsync(canonicalBytes(parts));
}
