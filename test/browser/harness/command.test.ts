// `shaderl inspect` as a process: it prints its address, opens the system's browser on request, refuses a taken port,
// and ends when it is told to.
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { writeFixtureRun } from '../../support/inspect-run.ts';
import { removeFolder, scratchFolder } from './open-page.ts';

const folder = scratchFolder();
const run = join(folder, 'german');
const bin = fileURLToPath(new URL('../../../cli/bin.mjs', import.meta.url));
const opener = join(folder, 'bin/xdg-open');
const openedFile = join(folder, 'opened.txt');
let child: ChildProcess | null = null;

beforeAll(async () => {
  await writeFixtureRun(run, { steps: 1 });
  mkdirSync(join(folder, 'bin'));
  // Stands for the system's browser: notes what it was asked to open.
  writeFileSync(opener, `#!/bin/sh\nprintf '%s' "$1" > '${openedFile}'\n`);
  chmodSync(opener, 0o755);
});
afterEach(() => child?.kill('SIGKILL'));
afterAll(() => removeFolder(folder));

/** Starts the command; gives its output up to the first text that matches, and its exit. */
function start(args: readonly string[]) {
  const own = spawn(process.execPath, [bin, 'inspect', ...args], {
    env: { ...process.env, PATH: `${join(folder, 'bin')}:${process.env['PATH']}` },
  });
  child = own;
  let text = '';
  const seen = (wanted: RegExp) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const look = (more: Buffer | string) => {
        text += String(more);
        const match = wanted.exec(text);
        if (match) resolve(match);
      };
      own.stdout.on('data', look);
      own.stderr.on('data', look);
      own.on('exit', () => reject(new Error(`waiting for ${wanted}: found the end after ${text}; wanted the text.`)));
    });
  const ended = new Promise<number | null>((resolve) => own.on('exit', (code) => resolve(code)));
  return { own, seen, ended };
}

const untilTrue = async (check: () => boolean) => {
  for (let i = 0; i < 200 && !check(); i++) await new Promise((resolve) => setTimeout(resolve, 50));
};

it('prints its address, opens it in the browser with --open, serves the page there, and ends with Ctrl-C', async () => {
  const { own, seen, ended } = start([run, '--open']);
  const [, url = ''] = await seen(/^(http:\/\/127\.0\.0\.1:\d+\/[0-9a-f]{32}\/)$/m);
  await untilTrue(() => existsSync(openedFile) && readFileSync(openedFile, 'utf8') !== '');
  expect(readFileSync(openedFile, 'utf8')).toBe(url);
  const page = await (await fetch(url)).text();
  expect(page).toContain('<div id="app">');
  // Of all the machine's addresses it listens on loopback alone.
  const refused = await new Promise<string>((resolve) => {
    const socket = connect(Number(new URL(url).port), '127.0.0.2');
    socket.on('connect', () => resolve('connected'));
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
  });
  expect(refused).toBe('ECONNREFUSED');
  own.kill('SIGINT');
  expect(await ended).toBe(0);
});

it('takes the port that --port names, and refuses one that is taken with the remedy', async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as AddressInfo;
  const taken = start([run, '--port', String(port)]);
  await taken.seen(/found a port that is taken; wanted a free port\. Give another --port, or 0 for any\./);
  expect(await taken.ended).toBe(2);
  await new Promise((resolve) => other.close(resolve));
  const { own, seen, ended } = start([run, '--port', String(port)]);
  const [, shown] = await seen(/^http:\/\/127\.0\.0\.1:(\d+)\//m);
  expect(shown).toBe(String(port));
  own.kill('SIGTERM');
  expect(await ended).toBe(0);
});
