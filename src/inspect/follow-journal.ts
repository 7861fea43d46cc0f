// Reads a journal that may still be written to, line by line, and keeps what came before a line that does not verify.
// Not the verification (src/journal.ts). Invariant: an entry that is returned was verified against the one before it.
import { JOURNAL_START, type JournalPosition, readJournalBytes } from '../journal.ts';
import type { JournalEntry } from '../journal-events.ts';
import { ShaderlError } from '../lib/errors.ts';

export interface JournalFollower {
  readonly entries: readonly JournalEntry[];
  /** Why reading stopped for good, or null. */
  readonly fault: string | null;
  /** Reads on; `bytes` is the whole file as it is now. Gives the new entries. */
  update(bytes: Uint8Array): Promise<JournalEntry[]>;
}

const newline = 10;

/** A follower of the journal that `label` names in messages. */
export function followJournal(label: string): JournalFollower {
  const entries: JournalEntry[] = [];
  let position: JournalPosition = JOURNAL_START;
  let fault: string | null = null;
  return {
    entries,
    get fault() {
      return fault;
    },
    async update(bytes) {
      const added: JournalEntry[] = [];
      while (fault === null) {
        const end = bytes.length < position.bytes ? bytes.length : bytes.indexOf(newline, position.bytes) + 1;
        if (end === 0) break;
        try {
          const reading = await readJournalBytes(bytes.subarray(0, end), label, position);
          position = reading.position;
          added.push(...reading.entries);
        } catch (error) {
          if (!(error instanceof ShaderlError)) throw error;
          fault = error.message;
        }
      }
      entries.push(...added);
      return added;
    },
  };
}
