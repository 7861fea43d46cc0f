// The storage port: what a run writes its journal, rollouts and checkpoints through.
// Not a file system: no handles, no partial writes, no links; paths are relative to one root, with `/` between names.
// Invariant: when a call resolves, its effect survives a crash of the process or the machine; when it does not, the old
// content is still there.
import { CheckpointError } from './errors.ts';

export interface StorageEntry {
  name: string;
  kind: 'file' | 'folder';
}

export interface Storage {
  /** How the root is named in messages: a folder's absolute path, or a browser's storage. */
  readonly label: string;
  /** Whole content. Throws CheckpointError `missing-file`. */
  read(path: string): Promise<Uint8Array>;
  /** Whole content as UTF-8; malformed bytes are refused (`not-utf8`). */
  readText(path: string): Promise<string>;
  /** Replaces the content at once: a reader sees the old bytes or the new ones. Makes missing folders. */
  write(path: string, bytes: Uint8Array): Promise<void>;
  /**
   * Adds bytes at the end and makes them durable. Refuses (`moved-on`) if the file does not hold `expectedBytes` bytes
   * beforehand, which means that somebody else wrote to it. A failed append leaves the old length; a crash may tear it.
   */
  append(path: string, bytes: Uint8Array, expectedBytes: number): Promise<void>;
  /** Entries of a folder by name in code-unit order; empty if the folder does not exist. `''` is the root. */
  list(path: string): Promise<StorageEntry[]>;
  /** Moves a file or folder, making missing folders; refuses (`exists`) if the target exists. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file or a whole folder. Removing what does not exist is no error. */
  remove(path: string): Promise<void>;
  exists(path: string): Promise<boolean>;
}

/**
 * Called before each effect of a write with the boundary's name, `operation:path:stage`. A test kills the process or
 * throws in it; nothing else may be done there.
 */
export type BeforeWrite = (boundaryName: string) => void | Promise<void>;

/** Refuses a path that is absolute, leaves the root or is not in its shortest form. `''` is the root. */
export function requireRelativePath(path: string): void {
  if (path === '') return;
  const bad = path.split('/').some((part) => part === '' || part === '.' || part === '..');
  if (bad || path.includes('\\') || path.includes('\0')) {
    throw new CheckpointError(
      'bad-path',
      `opening a stored file: found the path ${JSON.stringify(path)}; wanted names joined by "/" below the root. ` +
        'Give a relative path without "." and "..".',
    );
  }
}

/** The folder part of a path (`''` for a name in the root). */
export function folderOf(path: string): string {
  const slash = path.lastIndexOf('/');
  return slash < 0 ? '' : path.slice(0, slash);
}

/**
 * Moves what cannot be trusted into `recovery/` under a name that was free, and returns that name. Nothing is deleted:
 * a person decides.
 */
export async function moveToRecovery(storage: Storage, path: string): Promise<string> {
  const target = await freeRecoveryName(storage, path);
  await storage.rename(path, target);
  return target;
}

/** A name in `recovery/` that is not taken: the path with `-` for `/`, and a number. */
export async function freeRecoveryName(storage: Storage, path: string): Promise<string> {
  const taken = new Set((await storage.list('recovery')).map((entry) => entry.name));
  const stem = path.replaceAll('/', '-');
  let number = 1;
  while (taken.has(`${stem}.${number}`)) number += 1;
  return `recovery/${stem}.${number}`;
}
