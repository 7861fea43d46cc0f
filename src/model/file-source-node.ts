// A folder on disk as a FileSource, by ranged reads through file handles: no file is ever read whole unless asked for.
// Not a watcher: a file that shrinks while it is read is an error. Invariant: names cannot leave the folder.
import { statSync } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileFault } from './file-fault.ts';
import { checkRange, missingFile } from './file-source.ts';
import type { DirectSource } from './weight-chunks.ts';

// One read call of the operating system moves less than 2 GiB, whatever the buffer's size.
const MAX_READ_BYTES = 2 ** 30;

/**
 * The files under `path`, links to files followed (a Hugging Face cache is made of them). Throws if it is no folder.
 */
export function folderSource(path: string): DirectSource {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isDirectory()) {
    throw fileFault('missing-folder', {
      doing: `opening ${path}`,
      found: stats ? 'a file' : 'nothing',
      wanted: 'a folder',
      remedy: 'Give the folder that holds the files, not one of the files.',
    });
  }
  async function readInto(name: string, offsetBytes: number, into: Uint8Array): Promise<void> {
    const size = await fileSize(path, name);
    if (size === null) throw missingFile(path, name, (await listFiles(path, '')).sort());
    checkRange(path, name, size, offsetBytes, into.length);
    const handle = await open(join(path, name), 'r');
    try {
      for (let done = 0; done < into.length; ) {
        const length = Math.min(MAX_READ_BYTES, into.length - done);
        const { bytesRead } = await handle.read(into, done, length, offsetBytes + done);
        if (bytesRead === 0) checkRange(path, name, offsetBytes + done, offsetBytes, into.length);
        done += bytesRead;
      }
    } finally {
      await handle.close();
    }
  }
  return {
    label: path,
    list: async () => (await listFiles(path, '')).sort(),
    size: (name) => fileSize(path, name),
    async read(name, offsetBytes, lengthBytes) {
      const size = await fileSize(path, name);
      // A range that is no range must not become an allocation.
      if (size !== null) checkRange(path, name, size, offsetBytes, lengthBytes);
      const bytes = new Uint8Array(size === null ? 0 : lengthBytes);
      await readInto(name, offsetBytes, bytes);
      return bytes;
    },
    readInto,
  };
}

async function fileSize(folder: string, name: string): Promise<number | null> {
  if (name.startsWith('/') || name.includes('\\') || name.split('/').some((part) => part === '..' || part === '')) {
    throw fileFault('bad-file-name', {
      doing: `opening a file under ${folder}`,
      found: `the name ${JSON.stringify(name)}`,
      wanted: 'a relative name inside the folder',
      remedy: 'Correct the file that names it.',
    });
  }
  try {
    const stats = await stat(join(folder, name));
    return stats.isFile() ? stats.size : null;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw fileFault('unreadable-file', {
      doing: `opening ${join(folder, name)}`,
      found: code ?? String(error),
      wanted: 'a readable file',
      remedy: 'Check its permissions.',
      cause: error,
    });
  }
}

/** Names of all regular files below `folder`; linked folders are not entered, so that no link can make a loop. */
async function listFiles(folder: string, prefix: string): Promise<string[]> {
  const names: string[] = [];
  for (const entry of await readdir(join(folder, prefix), { withFileTypes: true })) {
    const name = prefix === '' ? entry.name : `${prefix}/${entry.name}`;
    if (entry.isDirectory()) names.push(...(await listFiles(folder, name)));
    else if ((await fileSize(folder, name)) !== null) names.push(name);
  }
  return names;
}
