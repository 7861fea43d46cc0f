// The storage port over a folder of this machine's file system.
// Not a lock: one process writes a root at a time; who that is, is settled elsewhere.
// Invariant: bytes are fsynced before the rename that shows them, and the folder after it.
import { constants, type FileHandle, lstat, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { CheckpointError } from './errors.ts';
import { type BeforeWrite, folderOf, requireRelativePath, type Storage, type StorageEntry } from './storage.ts';

interface Cause {
  code: string;
  found: string;
  wanted: string;
  remedy: string;
}

const DISK_FULL = { code: 'disk-full', wanted: 'room for the whole file' };
const NOT_ALLOWED = { code: 'permission', wanted: 'a place that this process may read and write' };
const EXISTS = { code: 'exists', wanted: 'a free name', remedy: 'Move it away first; nothing was overwritten.' };
const CAUSES: Record<string, Cause> = {
  ENOSPC: { ...DISK_FULL, found: 'no space left', remedy: 'Free space on that disk, then resume; nothing was lost.' },
  EDQUOT: { ...DISK_FULL, found: 'a used-up quota', remedy: 'Free space or raise the quota, then resume.' },
  EROFS: {
    code: 'read-only',
    found: 'a read-only file system',
    wanted: NOT_ALLOWED.wanted,
    remedy: 'Mount it writable or choose another output folder.',
  },
  EACCES: { ...NOT_ALLOWED, found: 'no permission', remedy: 'Give this user access or choose another output folder.' },
  EPERM: { ...NOT_ALLOWED, found: 'no permission', remedy: 'Give this user access or choose another output folder.' },
  ENOENT: {
    code: 'missing-file',
    found: 'nothing there',
    wanted: 'an existing file',
    remedy: 'Check the path; if the file was deleted, restore it or resume from an older checkpoint.',
  },
  ENOTDIR: {
    code: 'bad-path',
    found: 'a file in the place of a folder',
    wanted: 'a folder',
    remedy: 'Move that file away or choose another output folder.',
  },
  EISDIR: {
    code: 'bad-path',
    found: 'a folder in the place of a file',
    wanted: 'a file',
    remedy: 'Move that folder away or choose another output folder.',
  },
  EEXIST: { ...EXISTS, found: 'something of that name' },
  ENOTEMPTY: { ...EXISTS, found: 'a folder of that name' },
};

function storageError(error: unknown, doing: string, path: string): CheckpointError {
  if (error instanceof CheckpointError) return error;
  const errno = (error as NodeJS.ErrnoException).code ?? 'unknown';
  const { code, found, wanted, remedy } = (Object.hasOwn(CAUSES, errno) ? CAUSES[errno] : undefined) ?? {
    code: 'io',
    found: error instanceof Error ? error.message : String(error),
    wanted: 'the operation to succeed',
    remedy: 'Check the disk, then resume.',
  };
  const message = `${doing} ${path}: found ${found} (${errno}); wanted ${wanted}. ${remedy}`;
  return new CheckpointError(code, message, { cause: error });
}

export interface NodeStorageOptions {
  beforeWrite?: BeforeWrite;
  /** Bytes handed to one write call; small in tests, so that a kill can fall in mid-file. */
  chunkBytes?: number;
}

/** Opens (and on the first write makes) a root folder. */
export function createNodeStorage(rootFolder: string, options: NodeStorageOptions = {}): Storage {
  const root = resolve(rootFolder);
  const chunkBytes = options.chunkBytes ?? 16 * 2 ** 20;
  const before = async (operation: string, path: string, stage: string) => {
    await options.beforeWrite?.(`${operation}:${path}:${stage}`);
  };

  const at = (path: string): string => {
    requireRelativePath(path);
    return path === '' ? root : join(root, path);
  };

  async function attempt<T>(doing: string, path: string, action: () => Promise<T>): Promise<T> {
    const full = at(path);
    try {
      return await action();
    } catch (error) {
      throw storageError(error, doing, full);
    }
  }

  async function kindOf(full: string): Promise<'file' | 'folder' | null> {
    try {
      return (await lstat(full)).isDirectory() ? 'folder' : 'file';
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  }

  /** Makes the names in a folder durable: a rename or a new file is only on disk once its folder is. */
  async function syncFolder(full: string): Promise<void> {
    const handle = await open(full, constants.O_RDONLY | constants.O_DIRECTORY);
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  }

  async function makeFolder(full: string): Promise<void> {
    if ((await kindOf(full)) !== null) return;
    await makeFolder(dirname(full));
    await mkdir(full);
    await syncFolder(dirname(full));
  }

  /** Writes all bytes; the operating system may take fewer than it was handed. */
  async function writeAll(handle: FileHandle, bytes: Uint8Array, operation: string, path: string): Promise<void> {
    for (let start = 0, chunk = 0; start < bytes.length; chunk++) {
      await before(operation, path, `bytes-${chunk}`);
      const { bytesWritten } = await handle.write(bytes, start, Math.min(chunkBytes, bytes.length - start));
      start += bytesWritten;
    }
  }

  async function write(path: string, bytes: Uint8Array): Promise<void> {
    const full = at(path);
    const temporary = join(dirname(full), `.${basename(full)}.tmp`);
    await before('write', path, 'create');
    await makeFolder(dirname(full));
    const handle = await open(temporary, 'w');
    try {
      await writeAll(handle, bytes, 'write', path);
      await before('write', path, 'fsync');
      await handle.sync();
    } catch (error) {
      // Half a file under a temporary name is no evidence, and on a full disk its space is needed.
      await rm(temporary, { force: true });
      throw error;
    } finally {
      await handle.close();
    }
    await before('write', path, 'rename');
    await rename(temporary, full);
    await before('write', path, 'fsync-folder');
    await syncFolder(dirname(full));
  }

  async function append(path: string, bytes: Uint8Array, expectedBytes: number): Promise<void> {
    const full = at(path);
    await before('append', path, 'open');
    const isNew = (await kindOf(full)) === null;
    if (isNew) await makeFolder(dirname(full));
    const handle = await open(full, 'a');
    try {
      const size = (await handle.stat()).size;
      if (size !== expectedBytes) {
        throw new CheckpointError(
          'moved-on',
          `appending to ${full}: found ${size} bytes; wanted ${expectedBytes}, as this process left it. ` +
            'Another process wrote to it: stop that one, then resume.',
        );
      }
      try {
        await writeAll(handle, bytes, 'append', path);
        await before('append', path, 'fsync');
        await handle.sync();
      } catch (error) {
        // If even this fails, the torn tail is found and set aside at the next opening; the first error is the news.
        await handle.truncate(expectedBytes).catch(() => undefined);
        throw error;
      }
    } finally {
      await handle.close();
    }
    if (!isNew) return;
    await before('append', path, 'fsync-folder');
    await syncFolder(dirname(full));
  }

  async function list(path: string): Promise<StorageEntry[]> {
    const full = at(path);
    if ((await kindOf(full)) === null) return [];
    const entries = await readdir(full, { withFileTypes: true });
    return entries
      .map((entry): StorageEntry => ({ name: entry.name, kind: entry.isDirectory() ? 'folder' : 'file' }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async function move(from: string, to: string): Promise<void> {
    await before('rename', from, 'rename');
    await makeFolder(dirname(at(to)));
    // rename(2) would replace a file or an empty folder without a word.
    if ((await kindOf(at(to))) !== null) {
      throw Object.assign(new Error(`${at(to)} exists`), { code: 'EEXIST' });
    }
    await rename(at(from), at(to));
    await before('rename', from, 'fsync-folder');
    await syncFolder(dirname(at(to)));
    if (folderOf(from) !== folderOf(to)) await syncFolder(dirname(at(from)));
  }

  async function remove(path: string): Promise<void> {
    await before('remove', path, 'remove');
    if ((await kindOf(at(path))) === null) return;
    await rm(at(path), { recursive: true, force: true });
    await syncFolder(dirname(at(path)));
  }

  async function readText(path: string): Promise<string> {
    const bytes = await readFile(at(path));
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch (error) {
      throw new CheckpointError(
        'not-utf8',
        `reading ${at(path)}: found bytes that are not UTF-8; wanted text. The file was damaged or is another one; ` +
          'restore it.',
        { cause: error },
      );
    }
  }

  return {
    label: root,
    read: (path) => attempt('reading', path, async () => new Uint8Array(await readFile(at(path)))),
    readText: (path) => attempt('reading', path, () => readText(path)),
    write: (path, bytes) => attempt('writing', path, () => write(path, bytes)),
    append: (path, bytes, expectedBytes) => attempt('appending to', path, () => append(path, bytes, expectedBytes)),
    list: (path) => attempt('listing', path, () => list(path)),
    rename: (from, to) => attempt(`moving ${at(from)} to`, to, () => move(from, to)),
    remove: (path) => attempt('removing', path, () => remove(path)),
    exists: (path) => attempt('looking for', path, async () => (await kindOf(at(path))) !== null),
  };
}
