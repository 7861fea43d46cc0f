// Qualification files on disk, and the hash of the program's own source that stands in them.
// Not the qualifying. Invariant: a file appears under its final name only when it is complete.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { KernelFamily } from './gpu/device.ts';
import { DeviceError } from './lib/errors.ts';
import { folderSource } from './model/file-source-node.ts';
import { treeSha256 } from './model/tree-hash-node.ts';
import { formatQualification, parseQualification, type Qualification } from './qualification.ts';

const QUALIFICATION_FILE = 'qualification.json';

/** Where `qualify` writes, and training looks, unless told otherwise: relative to the working folder. */
export function qualificationFolder(family: KernelFamily): string {
  return join('runs', `qualification-${family}`);
}

/** Tree hash of every file under src/ of this program. */
export function sourceSha256(): Promise<string> {
  return treeSha256(folderSource(fileURLToPath(new URL('.', import.meta.url))));
}

/** Reads the qualification in a folder. Throws DeviceError `no-qualification` or `bad-qualification`. */
export function loadQualification(folder: string): { qualification: Qualification; file: string } {
  const file = join(folder, QUALIFICATION_FILE);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const found = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'no such file' : (error as Error).message;
    throw new DeviceError(
      'no-qualification',
      `reading ${file}: found ${found}; wanted the qualification of this device. Run \`shaderl qualify\` first.`,
      { cause: error },
    );
  }
  return { qualification: parseQualification(text, file), file };
}

/** Writes the qualification into a folder, which is made, and gives the file's path. */
export function writeQualification(folder: string, qualification: Qualification): string {
  const file = join(folder, QUALIFICATION_FILE);
  const partial = `${file}.${process.pid}.part`;
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(partial, formatQualification(qualification));
    renameSync(partial, file);
  } catch (error) {
    rmSync(partial, { force: true });
    throw new DeviceError(
      'unwritable-qualification',
      `writing ${file}: ${(error as Error).message}; wanted a folder that can be written. Choose another --output.`,
      { cause: error },
    );
  }
  return file;
}
