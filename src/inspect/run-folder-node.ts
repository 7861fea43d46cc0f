// A run's folder as the inspector may see it: journal, configuration, rollouts, evaluations, sealed adapters. Of an
// experiment's folder (plan.json) the run is its training, with the experiment's own journal and evaluations beside it.
// Not a browser of files: what is not of these kinds does not exist here. Invariant: nothing is written, and no byte
// comes from outside the folder (links included) but the named tokenizer files of the model that the run names.
import { open, readdir, readFile, realpath, stat } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, resolve, sep } from 'node:path';
import { PlanError } from '../lib/errors.ts';
import { type ExperimentFile, tokenizerFileNames } from './api.ts';
import type { ByteFile } from './byte-file.ts';
import { readExperiment } from './experiment-folder-node.ts';

export interface RunFolder {
  readonly name: string;
  readonly label: string;
  /** run-config.json parsed, or null where there is none or it is no JSON. */
  config(): Promise<unknown>;
  /** The journal's bytes; null where there is none. */
  journal(): Promise<Uint8Array | null>;
  /** Facts of an experiment's plan and decisions, and its journal's bytes; null for a run that is none. */
  experiment(): Promise<ExperimentFile | null>;
  experimentJournal(): Promise<Uint8Array | null>;
  /** Rollouts files as `rollouts/step-000001.jsonl`, in order. */
  rolloutFiles(): Promise<string[]>;
  evaluations(): Promise<string[]>;
  /** Folders under checkpoints/ that hold an adapter. */
  checkpoints(): Promise<string[]>;
  tokenizerFiles(): Promise<string[]>;
  readTokenizerFile(name: string): Promise<Uint8Array | null>;
  /** A file of the lists above, or an adapter's file; null for anything else. */
  file(path: string): Promise<ByteFile | null>;
}

const servedPaths = [
  /^(training\/)?journal\.jsonl$/,
  /^(training\/)?rollouts\/[\w.-]+\.jsonl$/,
  /^evaluations\/[\w.-]+\.jsonl?$/,
  /^evaluations\/[\w.-]+\.json$/,
  /^(training\/)?checkpoints\/[\w.-]+\/adapter_(config\.json|model\.safetensors)$/,
];

/** A file on disk, read in ranges with a handle that each read opens and closes. */
function diskFile(path: string): ByteFile {
  return {
    label: path,
    size: async () => (await stat(path)).size,
    async read(offset, length) {
      const handle = await open(path, 'r');
      try {
        const bytes = new Uint8Array(length);
        const { bytesRead } = await handle.read(bytes, 0, length, offset);
        return bytes.subarray(0, bytesRead);
      } finally {
        await handle.close();
      }
    },
  };
}

async function namesIn(folder: string, pattern: RegExp): Promise<string[]> {
  try {
    return (await readdir(folder)).filter((name) => pattern.test(name)).sort();
  } catch {
    return [];
  }
}

async function readIfThere(path: string): Promise<Uint8Array | null> {
  try {
    return await readFile(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

function refused(path: string, found: string): PlanError {
  return new PlanError(
    'no-run',
    `inspecting ${path}: found ${found}; wanted a run's folder (with journal.jsonl or rollouts/) or a rollouts file. ` +
      'Give the folder that `shaderl train` or `shaderl run` wrote.',
  );
}

/** Opens a run's folder, or a single rollouts file as a run of that one file. Throws PlanError `no-run`. */
export async function openRunFolder(path: string): Promise<RunFolder> {
  const kind = await stat(path).catch(() => null);
  if (!kind) throw refused(path, 'nothing');
  if (kind.isFile()) return singleFile(path);
  const root = await realpath(path);
  const isExperiment = (await stat(join(root, 'plan.json')).catch(() => null)) !== null;
  const inside = isExperiment ? 'training/' : '';

  async function file(relative: string): Promise<ByteFile | null> {
    if (!servedPaths.some((pattern) => pattern.test(relative)) || relative.split('/').includes('..')) return null;
    // A link inside the run that leads out of it is as good as no file.
    const real = await realpath(join(root, relative)).catch(() => null);
    return real?.startsWith(root + sep) ? diskFile(real) : null;
  }
  const bytesOf = async (relative: string) => {
    const found = await file(relative);
    return found ? found.read(0, await found.size()) : null;
  };
  const rolloutFiles = async () => [
    ...(await namesIn(join(root, inside, 'rollouts'), /^[\w.-]+\.jsonl$/)).map((name) => `${inside}rollouts/${name}`),
    ...(await namesIn(join(root, 'evaluations'), /^[\w.-]+\.jsonl$/)).map((name) => `evaluations/${name}`),
  ];
  async function config(): Promise<unknown> {
    const bytes = await readIfThere(join(root, inside, 'run-config.json'));
    try {
      return bytes && JSON.parse(new TextDecoder().decode(bytes));
    } catch {
      return null;
    }
  }
  async function modelFolder(): Promise<string | null> {
    const model = ((await config()) as { model?: unknown } | null)?.model;
    if (typeof model !== 'string') return null;
    const candidates = isAbsolute(model) ? [model] : [resolve(model), resolve(root, model), resolve(root, '..', model)];
    for (const folder of candidates) {
      if (await stat(join(folder, 'tokenizer.json')).catch(() => null)) return folder;
    }
    return null;
  }
  const names = { rollouts: await rolloutFiles(), journal: await readIfThere(join(root, 'journal.jsonl')) };
  if (names.rollouts.length === 0 && names.journal === null && !isExperiment) {
    throw refused(path, 'neither journal.jsonl nor rollouts/*.jsonl');
  }
  return {
    name: basename(root),
    label: root,
    config,
    journal: () => bytesOf(`${inside}journal.jsonl`),
    experiment: async () => (isExperiment ? readExperiment(root) : null),
    experimentJournal: async () => (isExperiment ? bytesOf('journal.jsonl') : null),
    rolloutFiles,
    evaluations: async () =>
      (await namesIn(join(root, 'evaluations'), /^[\w.-]+\.json$/)).map((name) => `evaluations/${name}`),
    async checkpoints() {
      const folders = await namesIn(join(root, inside, 'checkpoints'), /^[\w.-]+$/);
      const found = await Promise.all(
        folders.map(async (name) => (await file(`${inside}checkpoints/${name}/adapter_model.safetensors`)) !== null),
      );
      return folders.filter((_, i) => found[i]).map((name) => `${inside}checkpoints/${name}`);
    },
    async tokenizerFiles() {
      const folder = await modelFolder();
      return folder === null ? [] : namesIn(folder, new RegExp(`^(${tokenizerFileNames.join('|')})$`));
    },
    async readTokenizerFile(name) {
      const folder = await modelFolder();
      if (folder === null || !(tokenizerFileNames as readonly string[]).includes(name)) return null;
      return readIfThere(join(folder, name));
    },
    file,
  };
}

async function singleFile(path: string): Promise<RunFolder> {
  if (!path.endsWith('.jsonl')) throw refused(path, 'a file that is not .jsonl');
  const name = basename(path);
  const none = async () => [];
  return {
    name,
    label: join(dirname(path), name),
    config: async () => null,
    journal: async () => null,
    experiment: async () => null,
    experimentJournal: async () => null,
    rolloutFiles: async () => [name],
    evaluations: none,
    checkpoints: none,
    tokenizerFiles: none,
    readTokenizerFile: async () => null,
    file: async (relative) => (relative === name ? diskFile(path) : null),
  };
}
