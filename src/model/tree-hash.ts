// One SHA-256 for a set of files: the hash of the canonical JSON (RFC 8785) of [[path, bytes, sha256], ...], paths
// relative with `/`, sorted by UTF-8 bytes, hashes in lower-case hex.
// Not tied to a hash library: the caller hands one in (tree-hash-node.ts has Node's). Files are streamed, never held
// whole.
// Invariant: equal hashes mean equal names and bytes; times, modes and the folder's own place have no part in it.
import { compareUtf8 } from '../lib/utf8-order.ts';
import { type FileSource, missingFile } from './file-source.ts';

/** An incremental SHA-256. */
export interface Sha256 {
  update(bytes: Uint8Array): unknown;
  /** Lower-case hex; the hash takes no more bytes after it. */
  hex(): string;
}

/** Path, size in bytes, SHA-256 in hex. */
export type TreeEntry = [string, number, string];

const CHUNK_BYTES = 8 * 2 ** 20;

/** The entries of `names` (all files of the source if left out), sorted by UTF-8 bytes. */
export async function treeEntries(
  source: FileSource,
  newSha256: () => Sha256,
  names?: readonly string[],
): Promise<TreeEntry[]> {
  const sorted = [...new Set(names ?? (await source.list()))].sort(compareUtf8);
  const entries: TreeEntry[] = [];
  for (const name of sorted) {
    const size = await source.size(name);
    if (size === null) throw missingFile(source.label, name, await source.list());
    const hash = newSha256();
    for (let at = 0; at < size; at += CHUNK_BYTES) {
      hash.update(await source.read(name, at, Math.min(CHUNK_BYTES, size - at)));
    }
    entries.push([name, size, hash.hex()]);
  }
  return entries;
}

/** The hash of a list of entries. JSON.stringify of strings and integers in arrays is their canonical JSON. */
export function hashEntries(entries: readonly TreeEntry[], newSha256: () => Sha256): string {
  const hash = newSha256();
  hash.update(new TextEncoder().encode(JSON.stringify(entries)));
  return hash.hex();
}
