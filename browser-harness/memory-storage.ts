// The storage port in memory: what a run made in the page is written to. Gone when the page is closed.
// Not durable, and says so in its label. Invariant: what is read is a copy, so no caller changes what was written.
import { CheckpointError } from '../src/lib/errors.ts';
import { requireRelativePath, type Storage } from '../src/lib/storage.ts';

/** A storage; `onWrite` sees each file's whole content after a write. */
export function memoryStorage(onWrite: (path: string, bytes: Uint8Array) => void): Storage {
  const label = "the page's memory";
  const files = new Map<string, Uint8Array>();
  const read = (path: string): Uint8Array => {
    const bytes = files.get(path);
    if (bytes) return bytes.slice();
    throw new CheckpointError(
      'missing-file',
      `reading ${label}/${path}: found nothing; wanted a file. Write it first.`,
    );
  };
  const put = (path: string, bytes: Uint8Array) => {
    requireRelativePath(path);
    files.set(path, bytes.slice());
    onWrite(path, bytes);
  };
  return {
    label,
    read: async (path) => read(path),
    readText: async (path) => new TextDecoder('utf-8', { fatal: true }).decode(read(path)),
    write: async (path, bytes) => put(path, bytes),
    async append(path, bytes, expectedBytes) {
      const old = files.get(path) ?? new Uint8Array(0);
      if (old.length !== expectedBytes) {
        const message =
          `appending to ${label}/${path}: found ${old.length} ` + `bytes; wanted ${expectedBytes}. Use one writer.`;
        throw new CheckpointError('moved-on', message);
      }
      const all = new Uint8Array(old.length + bytes.length);
      all.set(old);
      all.set(bytes, old.length);
      put(path, all);
    },
    async list(path) {
      const prefix = path === '' ? '' : `${path}/`;
      const names = new Map<string, 'file' | 'folder'>();
      for (const name of files.keys()) {
        if (!name.startsWith(prefix)) continue;
        const [first = '', ...more] = name.slice(prefix.length).split('/');
        names.set(first, more.length > 0 ? 'folder' : 'file');
      }
      return [...names].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, kind]) => ({ name, kind }));
    },
    async rename(from, to) {
      if (files.has(to)) throw new CheckpointError('exists', `renaming ${from}: found ${to}; wanted a free name.`);
      put(to, read(from));
      files.delete(from);
    },
    async remove(path) {
      for (const name of [...files.keys()]) if (name === path || name.startsWith(`${path}/`)) files.delete(name);
    },
    exists: async (path) => [...files.keys()].some((name) => name === path || name.startsWith(`${path}/`)),
  };
}
