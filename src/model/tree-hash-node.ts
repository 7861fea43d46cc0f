// The tree hash of tree-hash.ts with Node's SHA-256.
// Not a cache: every call reads all bytes. Invariant: the same number as any other implementation of that definition.
import { createHash } from 'node:crypto';
import type { FileSource } from './file-source.ts';
import { hashEntries, type Sha256, treeEntries } from './tree-hash.ts';

/** A streaming SHA-256. */
export function newSha256(): Sha256 {
  const hash = createHash('sha256');
  return { update: (bytes) => hash.update(bytes), hex: () => hash.digest('hex') };
}

/** The tree hash of `names`, or of every file of the source. Lower-case hex. */
export async function treeSha256(source: FileSource, names?: readonly string[]): Promise<string> {
  return hashEntries(await treeEntries(source, newSha256, names), newSha256);
}
