// Walks a rollouts file of any size in chunks and gives the row of each line.
// Not a parser of whole files: no more than a chunk and one line is held. Invariant: offsets are of the file's bytes.
import type { ByteFile } from './byte-file.ts';
import { type RolloutRow, skimLine } from './skim.ts';

const newline = 10;
const CHUNK_BYTES = 4 * 1024 * 1024;
/** A line beyond this is no rollout: 64 MiB are about a million tokens. */
export const MAX_LINE_BYTES = 64 * 1024 * 1024;

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const [only] = parts;
  if (parts.length === 1 && only) return only;
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/**
 * Calls `visit` with each line's bytes (null for a line beyond MAX_LINE_BYTES), number (from 1), offset, and whether its
 * newline was there.
 */
export async function walkLines(
  file: ByteFile,
  visit: (line: Uint8Array | null, number: number, offset: number, whole: boolean) => void,
): Promise<void> {
  const size = await file.size();
  let number = 1;
  let offset = 0;
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  for (let at = 0; at < size; at += CHUNK_BYTES) {
    const chunk = await file.read(at, Math.min(CHUNK_BYTES, size - at));
    let from = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, from)) {
      visit(heldBytes > MAX_LINE_BYTES ? null : joined([...held, chunk.subarray(from, end)]), number, offset, true);
      offset = at + end + 1;
      number += 1;
      from = end + 1;
      held = [];
      heldBytes = 0;
    }
    heldBytes += chunk.length - from;
    if (heldBytes <= MAX_LINE_BYTES) held.push(chunk.subarray(from));
    else held = [];
  }
  if (heldBytes > 0) visit(heldBytes > MAX_LINE_BYTES ? null : joined(held), number, offset, false);
}

/** The rows of a file, `onRows` after each few; a last line without newline is a fault, because it was cut off. */
export async function indexRollouts(file: ByteFile): Promise<RolloutRow[]> {
  const rows: RolloutRow[] = [];
  await walkLines(file, (line, number, offset, whole) => {
    if (line === null || (line.length === 0 && whole)) {
      const found = line === null ? `a line of more than ${MAX_LINE_BYTES / 2 ** 20} MiB` : 'an empty line';
      rows.push({
        kind: 'broken',
        line: number,
        offset,
        bytes: 0,
        fault: `found ${found}; wanted one rollout as JSON`,
      });
      return;
    }
    const row = skimLine(line, number, offset);
    if (whole || row.kind === 'episode') rows.push(row);
    else rows.push({ ...row, fault: `${row.fault}; the last line is cut off, or is being written` });
  });
  return rows;
}
