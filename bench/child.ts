// Programs that the bench starts beside itself, for what one process cannot measure: a start, a second device, a peer.
// Not workers: each runs once and prints its result. Invariant: a child that fails is an error with its own last words.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';

const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;

/** The line of an error output that says what went wrong: Node and Python both begin it with the class of the error. */
function lastWords(output: string): string {
  const lines = output.trim().split('\n');
  return lines.findLast((line) => /^[\w.]*Error\b/.test(line)) ?? lines.slice(-2).join(' ');
}

/** Runs a program; its last line of output. Throws with the error that it ended in. */
export function lastLine(program: string, args: readonly string[], timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs });
    let out = '';
    let err = '';
    child.stdout.on('data', (data) => {
      out += data;
    });
    child.stderr.on('data', (data) => {
      err = `${err}${data}`.slice(-4000);
    });
    child.on('error', reject);
    child.on('close', (code, signal) => {
      if (code === 0) resolve(out.trim().split('\n').at(-1) ?? '');
      else reject(new Error(`${signal ?? `exit code ${code}`}: ${lastWords(err)}`));
    });
  });
}

/** Runs a TypeScript module of the bench in a Node of its own with one JSON argument; the JSON of its last line. */
export async function runChild<T>(module: URL, order: unknown, timeoutMs: number): Promise<T> {
  const args = ['--import', loader, fileURLToPath(module), JSON.stringify(order)];
  return JSON.parse(await lastLine(process.execPath, args, timeoutMs)) as T;
}

/** In a child: the order that it was started with. */
export function orderOf<T>(): T {
  return JSON.parse(process.argv[2] ?? '{}') as T;
}

/** In a child: prints the result and ends, whatever handles the GPU library still holds. */
export function answer(result: unknown): void {
  process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
}
