// serve-env and smoke-env as processes: the address that is printed, the proof that is written, exit codes, the end.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { sha256Hex } from '../../src/lib/sha256-node.ts';

const folder = mkdtempSync(join(tmpdir(), 'commands-'));
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});

interface Running {
  child: ChildProcess;
  out: () => string;
  err: () => string;
  exit: Promise<number | null>;
}

function run(...args: string[]): Running {
  const script = fileURLToPath(new URL('./support/cli-child.ts', import.meta.url));
  const child = spawn(process.execPath, ['--import', 'tsx', script, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let [out, err] = ['', ''];
  child.stdout!.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr!.on('data', (chunk) => {
    err += chunk;
  });
  const exit = new Promise<number | null>((resolve) => child.once('exit', (code) => resolve(code)));
  return { child, out: () => out, err: () => err, exit };
}

const smoke = (protocol: string, url: string, output: string): Running =>
  run(
    'smoke-env',
    '--protocol',
    protocol,
    '--url',
    url,
    '--output',
    join(folder, output),
    '--concurrency',
    '8',
    '--json',
  );

it('serve-env and smoke-env serve on loopback, prove the service, and stop on SIGTERM', async () => {
  const protocols = ['nemo-gym', 'openenv'] as const;
  const served = protocols.map((protocol) => run('serve-env', '--protocol', protocol, '--max-sessions', '8', '--json'));
  const urls: string[] = [];
  for (const [i, { out }] of served.entries()) {
    await expect.poll(out, { timeout: 30_000 }).toContain('\n');
    const about = JSON.parse(out());
    expect(about).toMatchObject({ protocol: protocols[i], maxSessions: 8 });
    expect(new URL(about.url).hostname).toBe('127.0.0.1');
    urls.push(about.url);
  }
  const proofs = protocols.map((protocol, i) => smoke(protocol, urls[i]!, protocol));
  for (const [i, proof] of proofs.entries()) {
    expect([await proof.exit, proof.err()]).toEqual([0, expect.any(String)]);
    const result = JSON.parse(proof.out());
    expect(result).toMatchObject({ passed: true, protocol: protocols[i] });
    expect(sha256Hex(readFileSync(join(folder, protocols[i]!, 'smoke.json')))).toBe(result.sha256);
  }

  // A proof is never overwritten; a port that is taken is an infrastructure failure.
  const again = smoke('openenv', urls[1]!, 'openenv');
  const second = run('serve-env', '--protocol', 'openenv', '--port', new URL(urls[1]!).port);
  expect([await again.exit, await second.exit]).toEqual([2, 4]);
  expect(JSON.parse(again.err().trim().split('\n').at(-1)!).error.code).toBe('smoke-exists');
  expect(second.err()).toContain('Choose another one.');

  for (const { child } of served) child.kill('SIGTERM');
  expect(await Promise.all(served.map(({ exit }) => exit))).toEqual([0, 0]);
  const gone = smoke('openenv', urls[1]!, 'gone');
  expect(await gone.exit).toBe(4);
  expect(gone.err()).toContain('service-refused');
}, 120_000);
