import { fork } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { acquireLock, processStart, readLock } from '../../src/experiment/lock-node.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-lock-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const folder = () => mkdtempSync(join(base, 'run-'));
const script = new URL('../support/lock-child.ts', import.meta.url).pathname;

/** A process that tries to take the lock and then waits; resolves to what it said and a way to kill it. */
function contender(at: string): Promise<{ said: string; kill: () => Promise<void> }> {
  const child = fork(script, [at], { execArgv: ['--import', 'tsx'] });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('message', (said: string) =>
      resolve({
        said,
        kill: () =>
          new Promise((done) => {
            child.on('exit', () => done());
            child.kill('SIGKILL');
          }),
      }),
    );
  });
}

describe('the lock of an experiment', () => {
  test('is free, then held by this process, then free again', () => {
    const at = folder();
    expect(readLock(at).state).toBe('free');
    const lock = acquireLock(at);
    expect(readLock(at)).toMatchObject({ state: 'held', holder: { host: hostname(), pid: process.pid } });
    expect(() => acquireLock(at)).toThrow(
      new RegExp(
        `locking ${at}: found ${join(at, 'lock/000001.json')} held by pid ${process.pid} on ${hostname()}, ` +
          'started .*; wanted no other writer\\. Two processes cannot run one plan at once\\. \\S.*\\.$',
      ),
    );
    lock.release();
    expect(readLock(at).state).toBe('free');
    acquireLock(at).release();
    expect(readdirSync(join(at, 'lock'))).toEqual(['000002.json']);
  });

  test('refuses a second process while the first lives, and is taken over once it was killed', async () => {
    const at = folder();
    const first = await contender(at);
    expect(first.said).toBe('taken');
    const second = await contender(at);
    expect(second.said).toContain('[locked]');
    await second.kill();
    await first.kill();
    expect(readLock(at).state).toBe('stale');
    const lock = acquireLock(at);
    expect(lock.tookOver).toMatchObject({ host: hostname() });
    lock.release();
  });

  test('tells a process from a later one with the same pid by its start time', () => {
    const at = folder();
    acquireLock(at);
    const file = join(at, 'lock/000001.json');
    const holder = JSON.parse(readFileSync(file, 'utf8'));
    expect(holder.started).toBe(processStart(process.pid));
    writeFileSync(file, JSON.stringify({ ...holder, started: 'another boot:17' }));
    expect(readLock(at).state).toBe('stale');
    expect(acquireLock(at).tookOver).toMatchObject({ started: 'another boot:17' });
  });

  test('of another host is refused until that host is named', () => {
    const at = folder();
    acquireLock(at);
    const file = join(at, 'lock/000001.json');
    writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), host: 'gpu-17' }));
    expect(() => acquireLock(at)).toThrow(/on gpu-17, .*--take-lock-from gpu-17/);
    expect(() => acquireLock(at, 'gpu-18')).toThrow(/gpu-17/);
    expect(acquireLock(at, 'gpu-17').tookOver).toMatchObject({ host: 'gpu-17' });
  });

  test('is taken by one of several processes that find the same stale lock at once', async () => {
    const at = folder();
    await (await contender(at)).kill();
    const all = await Promise.all([1, 2, 3].map(() => contender(at)));
    expect(all.filter(({ said }) => said === 'taken')).toHaveLength(1);
    for (const one of all) await one.kill();
  });

  test('knows that a process does not exist', () => {
    expect(processStart(2 ** 22 + 1)).toBeNull();
  });
});
