// Hashes what a plan freezes, and finds what changed since: program, inputs, generated data.
// Not a cache: every check reads every byte. Invariant: files are checked in a fixed order, so the first difference is
// the same on every machine.
import { readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PlanError } from '../lib/errors.ts';
import { sha256Hex } from '../lib/sha256-node.ts';
import { compareUtf8 } from '../lib/utf8-order.ts';
import { folderSource } from '../model/file-source-node.ts';
import { hashEntries, type TreeEntry, treeEntries } from '../model/tree-hash.ts';
import { newSha256 } from '../model/tree-hash-node.ts';
import { requireInstalled } from './dependencies-node.ts';
import type { Keeper } from './keep-node.ts';
import { type Locate, openKept, planCopy } from './kept-node.ts';
import { type FrozenFile, type FrozenTree, type LoadedPlan, PLAN_HASH_FILE, type Plan, parsePlan } from './plan.ts';
import type { PlanDifference } from './plan-changes.ts';

const programRoot = fileURLToPath(new URL('../../', import.meta.url));
const runtimeFolders = ['cli', 'shaders', 'src', 'workers'];
const runtimeFile = /\.(ts|mjs|wgsl)$/;
const LOCK = 'package-lock.json';

/** Reads a file. `wanted` says what it is for and what to do without it. Throws PlanError `unreadable-input`. */
async function readInput(
  at: string,
  doing = 'freezing',
  wanted = 'a readable file. Check the path.',
): Promise<Uint8Array> {
  try {
    return await readFile(at);
  } catch (error) {
    const found = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'no such file' : (error as Error).message;
    throw new PlanError('unreadable-input', `${doing} ${at}: found ${found}; wanted ${wanted}`, { cause: error });
  }
}

/**
 * Hash and size of one file. `path` is recorded; `at` is where it is read; `keeper` keeps what was read; `wanted` is said
 * where it cannot be read. Throws PlanError `unreadable-input`.
 */
export async function freezeFile(
  path: string,
  at: string = path,
  keeper?: Keeper,
  wanted?: string,
): Promise<FrozenFile> {
  const bytes = await readInput(at, 'freezing', wanted);
  return { path, bytes: bytes.length, sha256: keeper ? keeper.add(bytes) : sha256Hex(bytes) };
}

const fromEntry = ([path, bytes, sha256]: TreeEntry): FrozenFile => ({ path, bytes, sha256 });

/** All files of a folder with the folder's tree hash; only `names` if given. */
export async function freezeTree(
  folder: string,
  identity: Pick<FrozenTree, 'declaredIdentity' | 'expect'>,
  keeper: Keeper,
  names?: readonly string[],
): Promise<FrozenTree> {
  const entries = await treeEntries(folderSource(folder), keeper.newSha256, names);
  const { declaredIdentity, expect } = identity;
  return {
    folder,
    treeSha256: hashEntries(entries, newSha256),
    declaredIdentity,
    expect,
    files: entries.map(fromEntry),
  };
}

function runtimeNames(folder: string): string[] {
  return readdirSync(join(programRoot, folder), { withFileTypes: true }).flatMap((entry) => {
    const name = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return runtimeNames(name);
    return runtimeFile.test(name) ? [name] : [];
  });
}

/**
 * This program: its version, every runtime file, and the lock of its dependencies. Throws PlanError
 * `other-dependencies` where others are installed.
 */
export async function freezeProgram(keeper: Keeper): Promise<Plan['program']> {
  requireInstalled(programRoot);
  const names = [...runtimeFolders.flatMap(runtimeNames), 'package.json'].sort(compareUtf8);
  const files: FrozenFile[] = [];
  for (const name of names) files.push(await freezeFile(name, join(programRoot, name), keeper));
  const { version } = JSON.parse(readFileSync(join(programRoot, 'package.json'), 'utf8')) as { version: string };
  return { version, files, lock: await freezeFile(LOCK, join(programRoot, LOCK), keeper) };
}

/**
 * Reads the plan in a file (its hash file beside it). Throws PlanError `unreadable-input`, `bad-plan`,
 * `plan-changed`.
 */
export async function loadPlan(file: string, folder: string): Promise<LoadedPlan> {
  const wanted = 'the plan of an experiment with its hash beside it, as `shaderl prepare` writes them. Check the path.';
  const bytes = await readInput(file, 'reading', wanted);
  const hashLine = Buffer.from(await readInput(join(folder, PLAN_HASH_FILE), 'reading', wanted)).toString('utf8');
  return parsePlan(bytes, hashLine, file, () => planCopy(folder));
}

/** Hash of a file, or null where there is none. Other faults (permissions, a folder) are errors. */
async function foundHash(at: string): Promise<string | null> {
  try {
    return sha256Hex(await readFile(at));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new PlanError(
      'unreadable-input',
      `checking ${at}: found ${(error as Error).message}; wanted a readable file. Check its permissions.`,
      { cause: error },
    );
  }
}

async function differenceOf(file: FrozenFile, at: string, found: string | null, locate: Locate) {
  const place = found === null ? null : await locate(file, at);
  return { file: at, frozen: file.sha256, found, place };
}

async function fileDifferences(frozen: readonly FrozenFile[], root: string, locate: Locate): Promise<PlanDifference[]> {
  const differences: PlanDifference[] = [];
  for (const file of frozen) {
    const at = file.path.startsWith('/') ? file.path : join(root, file.path);
    const found = await foundHash(at);
    if (found !== file.sha256) differences.push(await differenceOf(file, at, found, locate));
  }
  return differences;
}

async function treeDifferences(tree: FrozenTree, wholeFolder: boolean, locate: Locate): Promise<PlanDifference[]> {
  const differences: PlanDifference[] = [];
  const source = folderSource(tree.folder);
  const present = await source.list();
  const frozen = new Set(tree.files.map(({ path }) => path));
  for (const file of tree.files) {
    const { path } = file;
    const entries = present.includes(path) ? await treeEntries(source, newSha256, [path]) : [];
    const found = entries[0]?.[2] ?? null;
    if (found !== file.sha256) differences.push(await differenceOf(file, join(tree.folder, path), found, locate));
  }
  if (wholeFolder) {
    for (const [path, , found] of await treeEntries(
      source,
      newSha256,
      present.filter((name) => !frozen.has(name)),
    )) {
      differences.push({ file: join(tree.folder, path), frozen: null, found, place: null });
    }
  }
  return differences;
}

/** Files behind an arm's service: the proof, and what starts it. */
export function serviceFiles({ service }: Plan): FrozenFile[] {
  if (!service) return [];
  const { proof, owned } = service;
  return [proof, ...(owned ? [owned.executable, ...owned.files] : [])];
}

/** Every file of a plan, in the order in which they are checked; those of the checkpoint by their whole paths. */
export function frozenFiles(plan: Plan): FrozenFile[] {
  const { baseline, tokenizer, mathDev, mathTrain, mgsm } = plan.inputs;
  const inTree = ({ folder, files }: FrozenTree) => files.map((file) => ({ ...file, path: join(folder, file.path) }));
  return [
    ...plan.program.files,
    plan.program.lock,
    ...inTree(baseline),
    ...inTree(tokenizer),
    ...[mathDev, mathTrain, mgsm],
    ...Object.values(plan.data),
    ...serviceFiles(plan),
    ...(plan.blocks ? [plan.blocks] : []),
  ];
}

/**
 * Everything that is not as the plan froze it, in this order: program files, the lock of the dependencies, baseline,
 * tokenizer, data files that were given, data files that were generated, the smoke proof, what starts the service, the
 * digests of large files. Files that came to the program or to the baseline's folder count too. `folder` is the
 * plan's. Throws PlanError `other-dependencies` where only what is installed differs.
 */
export async function planDifferences(plan: Plan, folder: string): Promise<PlanDifference[]> {
  const locate = openKept(plan, folder);
  const differences = await fileDifferences(plan.program.files, programRoot, locate);
  const frozen = new Set(plan.program.files.map(({ path }) => path));
  for (const name of runtimeFolders.flatMap(runtimeNames).sort(compareUtf8)) {
    if (frozen.has(name)) continue;
    const file = join(programRoot, name);
    differences.push({ file, frozen: null, found: await foundHash(file), place: null });
  }
  const { baseline, tokenizer, mathDev, mathTrain, mgsm } = plan.inputs;
  const all = [
    ...differences,
    ...(await fileDifferences([plan.program.lock], programRoot, locate)),
    ...(await treeDifferences(baseline, true, locate)),
    ...(await treeDifferences(tokenizer, false, locate)),
    ...(await fileDifferences([mathDev, mathTrain, mgsm], folder, locate)),
    ...(await fileDifferences(Object.values(plan.data), folder, locate)),
    ...(await fileDifferences(serviceFiles(plan), folder, locate)),
    ...(await fileDifferences(plan.blocks ? [plan.blocks] : [], folder, locate)),
  ];
  if (all.length === 0) requireInstalled(programRoot);
  return all;
}
