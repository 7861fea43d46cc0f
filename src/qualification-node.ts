// Qualification files on disk, and the hash of the program's own source that stands in them.
// Not the qualifying. Invariant: a file appears under its final name only when it is complete.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Gpu, KernelFamily } from './gpu/device.ts';
import { DeviceError } from './lib/errors.ts';
import { folderSource } from './model/file-source-node.ts';
import { treeSha256 } from './model/tree-hash-node.ts';
import {
  formatQualification,
  parseQualification,
  type Qualification,
  type QualifyOptions,
  qualify,
  requireQualified,
  shaderDigests,
} from './qualification.ts';

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

/**
 * Lets training go on only on a device with a passed qualification in a folder. Throws DeviceError `no-qualification`,
 * `bad-qualification` or `not-qualified`, each naming the command that helps.
 */
export async function requireQualifiedDevice(
  gpu: Gpu,
  family: KernelFamily,
  folder = qualificationFolder(family),
): Promise<Qualification> {
  const { qualification, file } = loadQualification(folder);
  requireQualified(qualification, family, gpu.identity, await shaderDigests(family), file);
  return qualification;
}

/**
 * The same for a job that must run by itself: a device without a qualification of its own is qualified now, which takes
 * seconds, and the file is written. Throws DeviceError `not-qualified` for a device that fails.
 */
export async function ensureQualifiedDevice(
  gpu: Gpu,
  family: KernelFamily,
  folder = qualificationFolder(family),
  onProgress?: QualifyOptions['onProgress'],
): Promise<Qualification> {
  try {
    return await requireQualifiedDevice(gpu, family, folder);
  } catch (error) {
    if (!(error instanceof DeviceError)) throw error;
  }
  const options = { family, sourceSha256: await sourceSha256(), ...(onProgress ? { onProgress } : {}) };
  writeQualification(folder, await qualify(gpu, options));
  return requireQualifiedDevice(gpu, family, folder);
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
