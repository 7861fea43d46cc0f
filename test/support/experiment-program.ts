// A copy of this program in a folder of its own, and its command line as processes. A plan freezes every byte of the
// program, so a test that changes one, or that runs while somebody works on the source, needs a copy.
import { type ChildProcess, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** Copies what runs; dependencies are linked, because the lock stands for them. */
export function copyProgram(to: string): string {
  mkdirSync(to, { recursive: true });
  for (const name of [
    'cli',
    'recipes',
    'shaders',
    'src',
    'workers',
    'package.json',
    'package-lock.json',
    'tsconfig.json',
  ]) {
    cpSync(join(root, name), join(to, name), { recursive: true });
  }
  symlinkSync(join(root, 'node_modules'), join(to, 'node_modules'));
  return to;
}

export interface Running {
  child: ChildProcess;
  done: Promise<{ exitCode: number | null; stdout: string; stderr: string }>;
}

/** Starts a command of the copied program. `cwd` is where the device's qualification is kept. */
export function start(program: string, cwd: string, argv: readonly string[]): Running {
  const child = spawn(process.execPath, [join(program, 'cli/bin.mjs'), ...argv], { cwd });
  const text = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (chunk: string) => {
      text[stream] += chunk;
    });
  }
  const done = new Promise<{ exitCode: number | null; stdout: string; stderr: string }>((resolve) => {
    child.on('close', (exitCode) => resolve({ exitCode, ...text }));
  });
  return { child, done };
}

/** Runs a command to its end and gives its JSON result, or its error. */
export async function shaderl(program: string, cwd: string, argv: readonly string[]) {
  const { exitCode, stdout, stderr } = await start(program, cwd, [...argv, '--json']).done;
  const lines = stderr.trimEnd().split('\n');
  const error = lines.at(-1)?.startsWith('{"error"') ? JSON.parse(lines.at(-1)!).error : null;
  return { exitCode, value: stdout === '' ? null : JSON.parse(stdout), error, stderr };
}

/** Waits until the journal in a folder has an entry that fits; gives false if the process ended before. */
export async function waitFor(
  folder: string,
  run: Running,
  fits: (line: { kind: string; data: Record<string, unknown> }) => boolean,
  file = 'journal.jsonl',
) {
  const path = join(folder, file);
  let ended = false;
  void run.done.then(() => {
    ended = true;
  });
  for (;;) {
    const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
    const lines = text.split('\n').slice(0, -1);
    if (lines.some((line) => fits(JSON.parse(line)))) return true;
    if (ended) return false;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The smallest recipe that has every stage. */
export const tinyRecipe = {
  name: 'tiny',
  training: {
    steps: 2,
    data: { count: 2 },
    generation: { temperature: 1, topP: 1, topK: 0, maxCompletionTokens: 40 },
    grpo: { groupSize: 2 },
    optimizer: { learningRate: 0.002 },
    lora: { rank: 2, alpha: 4 },
    checkpoints: { every: 1 },
  },
  qualification: { steps: 2, stopAfter: 1 },
  dev: { steps: [2], episodes: 2, mathItems: 1 },
  final: { episodes: 2, seeds: [42] },
  retention: { items: 1, seeds: [42] },
  comparison: { resamples: 100 },
  inspection: { items: 1 },
  budget: { wallSeconds: 3600, heartbeatSeconds: 1 },
};

export function writeRecipe(folder: string, recipe: object): string {
  const file = join(folder, 'recipe.json');
  writeFileSync(file, JSON.stringify(recipe));
  return file;
}

/** The content that equal experiments share, from report.json. */
export function reportContent(folder: string): { contentSha256: string; content: Record<string, unknown> } {
  return JSON.parse(readFileSync(join(folder, 'report.json'), 'utf8'));
}
