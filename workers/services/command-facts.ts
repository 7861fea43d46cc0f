// What a command is, in facts that a plan pins: executable, files that it names, versions of its packages.
// Not a sandbox: what a program reads beside these is its own affair. Invariant: the same machine in the same state
// gives the same facts; nothing of the service is run but its interpreter, asked for its packages.
import { execFileSync } from 'node:child_process';
import { accessSync, closeSync, constants, existsSync, openSync, readFileSync, readSync, statSync } from 'node:fs';
import { basename, delimiter, dirname, join, resolve } from 'node:path';
import { freezeFile } from '../../src/experiment/freeze-node.ts';
import type { FrozenFile } from '../../src/experiment/plan.ts';
import { type OwnedCommand, type PackageDifference, versionDifferences } from '../../src/experiment/service-facts.ts';
import { PlanError } from '../../src/lib/errors.ts';

const isFile = (path: string): boolean => existsSync(path) && statSync(path).isFile();

function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return isFile(path);
  } catch {
    return false;
  }
}

/** The absolute path of an executable, as a shell finds it. Links are kept: a virtual environment is one. */
function findExecutable(name: string, cwd: string): string {
  const folders = name.includes('/') ? [cwd] : (process.env['PATH'] ?? '').split(delimiter);
  const found = folders.map((folder) => resolve(cwd, folder, name)).find(canRun);
  if (found !== undefined) return found;
  throw new PlanError(
    'no-executable',
    `freezing service.command in ${cwd}: found no executable ${name}; wanted one there or on PATH. Correct the command.`,
  );
}

/** The interpreter of a script's first line, or the executable itself. */
function interpreterOf(executable: string): string {
  const head = Buffer.alloc(256);
  const file = openSync(executable, 'r');
  try {
    readSync(file, head, 0, head.length, 0);
  } finally {
    closeSync(file);
  }
  const line = /^#!\s*(\S+)(?:\s+(\S+))?/.exec(head.toString('latin1'));
  if (!line) return executable;
  if (basename(line[1]!) === 'env' && line[2]) return findExecutable(line[2], '/');
  return line[1]!;
}

const PYTHON_PACKAGES =
  'import importlib.metadata as m, json, platform, sys\n' +
  "found = {d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}\n" +
  "print(json.dumps({**found, 'python': platform.python_version(), 'sys.executable': sys.executable}))";

function pythonPackages(python: string, cwd: string): Record<string, string> {
  try {
    const text = execFileSync(python, ['-c', PYTHON_PACKAGES], { cwd, encoding: 'utf8', timeout: 60_000 });
    return JSON.parse(text) as Record<string, string>;
  } catch (error) {
    throw new PlanError(
      'no-packages',
      `freezing the packages of ${python}: found ${(error as Error).message.split('\n')[0]}; wanted a list of them. ` +
        'Correct service.command, or repair that Python.',
      { cause: error },
    );
  }
}

/** package-lock.json in the script's folder or the nearest above it. */
function nearestLock(script: string): string | null {
  for (let folder = dirname(script); ; folder = dirname(folder)) {
    const file = join(folder, 'package-lock.json');
    if (isFile(file)) return file;
    if (dirname(folder) === folder) return null;
  }
}

function nodePackages(node: string, lock: string | null): Record<string, string> {
  const version = execFileSync(node, ['--version'], { encoding: 'utf8', timeout: 60_000 }).trim();
  const found: Record<string, string> = { node: version };
  if (lock === null) return found;
  const { packages = {} } = JSON.parse(readFileSync(lock, 'utf8')) as {
    packages?: Record<string, { version?: string }>;
  };
  for (const [path, { version: of }] of Object.entries(packages)) {
    const name = path.replace(/^node_modules\//, '');
    if (of !== undefined && name !== '' && !name.includes('node_modules/')) found[name] = of;
  }
  return found;
}

function packagesOf(executable: string, files: readonly string[], cwd: string): Record<string, string> {
  const isPython = (path: string) => /^python[\d.]*$/.test(basename(path));
  // A version manager's python is a script itself, and finds the real one.
  const interpreter = isPython(executable) ? executable : interpreterOf(executable);
  const name = basename(interpreter);
  if (isPython(interpreter)) return pythonPackages(interpreter, cwd);
  if (/^node(js)?$/.test(name))
    return nodePackages(interpreter, files.map(nearestLock).find((lock) => lock !== null) ?? null);
  return {};
}

/** Freezes a command. `cwd` is absolute. Throws PlanError `no-executable`, `unreadable-input`, `no-packages`. */
export async function freezeCommand(
  command: readonly string[],
  cwd: string,
  further: readonly string[] = [],
): Promise<OwnedCommand> {
  const path = findExecutable(command[0]!, cwd);
  const named = command.slice(1).map((word) => resolve(cwd, word));
  const paths = [...new Set([...named.filter(isFile), ...further.map((file) => resolve(cwd, file))])];
  const files: FrozenFile[] = [];
  for (const file of paths) files.push(await freezeFile(file));
  return {
    command: [path, ...command.slice(1)],
    cwd,
    executable: await freezeFile(path),
    files,
    packages: packagesOf(path, paths, cwd),
  };
}

/** Packages that changed. Files are compared with the other files of a plan. */
export function packageDifferences({ command, cwd, files, packages }: OwnedCommand): PackageDifference[] {
  const paths = files.map(({ path }) => path);
  return versionDifferences(packages, packagesOf(command[0]!, paths, cwd));
}
