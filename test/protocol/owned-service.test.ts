// Services as processes: started, healthy by a deadline, ended with all that they started, and never mistaken for one
// that somebody else runs.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { processStart } from '../../src/experiment/lock-node.ts';
import { freePort, type OwnedServiceOptions, startOwnedService } from '../../workers/services/owned-service.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-owned-'));
const strangers: ChildProcess[] = [];
afterEach(() => {
  for (const child of strangers.splice(0)) child.kill('SIGKILL');
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

/** A server that says its pid, with what a test wants of it. */
const script = join(base, 'server.mjs');
writeFileSync(
  script,
  `import { createServer } from 'node:http';
import { spawn } from 'node:child_process';
const [port, mood] = process.argv.slice(2);
if (mood === 'fails') { console.error('no such task file: tasks.json'); process.exit(3); }
if (mood === 'stubborn') process.on('SIGTERM', () => {});
const child = mood === 'parent' ? spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']) : null;
const status = mood === 'sick' ? 503 : 200;
createServer((_, reply) => reply.writeHead(status).end(String(child?.pid ?? process.pid))).listen(Number(port), '127.0.0.1');
console.log('listening');
`,
);

let folders = 0;
async function options(mood: string, change: Partial<OwnedServiceOptions> = {}): Promise<OwnedServiceOptions> {
  const port = await freePort();
  folders += 1;
  return {
    argv: [process.execPath, script, String(port), mood],
    cwd: base,
    url: `http://127.0.0.1:${port}`,
    healthPath: '/health',
    healthDeadlineMs: 20_000,
    stopDeadlineMs: 5_000,
    folder: join(base, `logs-${folders}`),
    name: 'attempt',
    ...change,
  };
}

const alive = (pid: number) => processStart(pid) !== null;
const refusal = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable('it started'),
    (error: { name: string; code: string; message: string }) => error,
  );

describe('a service that is started here', () => {
  test('is healthy when its start resolves, keeps its logs, and is gone after its stop', async () => {
    const chosen = await options('well');
    const service = await startOwnedService(chosen);
    expect(await (await fetch(service.url)).text()).toBe(String(service.pid));
    expect(service.ended()).toBeNull();
    expect(JSON.parse(readFileSync(join(chosen.folder, 'child.json'), 'utf8'))).toMatchObject({ pid: service.pid });
    await Promise.all([service.stop(), service.stop()]);
    expect(alive(service.pid)).toBe(false);
    expect(readdirSync(chosen.folder).sort()).toEqual(['attempt.err.log', 'attempt.out.log']);
    expect(readFileSync(join(chosen.folder, 'attempt.out.log'), 'utf8')).toBe('listening\n');
  });

  test('is ended with the processes that it started itself', async () => {
    const service = await startOwnedService(await options('parent'));
    const grandchild = Number(await (await fetch(service.url)).text());
    expect(alive(grandchild)).toBe(true);
    await service.stop();
    expect([alive(service.pid), alive(grandchild)]).toEqual([false, false]);
  });

  test('is killed when it takes no notice of SIGTERM', async () => {
    const service = await startOwnedService(await options('stubborn', { stopDeadlineMs: 300 }));
    await service.stop();
    expect(alive(service.pid)).toBe(false);
    expect(service.ended()).toBe('SIGKILL');
  });

  test('that ends before it is healthy is named with how it ended and the end of its log', async () => {
    const chosen = await options('fails');
    const error = await refusal(startOwnedService(chosen));
    expect(error).toMatchObject({ name: 'EnvError', code: 'service-exited' });
    expect(error.message).toMatch(
      /found it ended with exit code 3; the end of .*: no such task file: tasks\.json; wanted/,
    );
  });

  test('that does not become healthy in time is ended', async () => {
    const chosen = await options('sick', { healthDeadlineMs: 700 });
    const error = await refusal(startOwnedService(chosen));
    expect(error).toMatchObject({ name: 'EnvError', code: 'service-unhealthy' });
    expect(error.message).toMatch(
      /wanted health at http:.*\/health within 0\.7 s\. .*raise service\.healthDeadlineSeconds/,
    );
    await expect(fetch(chosen.url)).rejects.toThrow();
  });

  test('whose executable does not exist is named', async () => {
    const chosen = await options('well', { argv: [join(base, 'nothing')] });
    const error = await refusal(startOwnedService(chosen));
    expect(error).toMatchObject({ name: 'EnvError', code: 'service-start' });
    expect(error.message).toContain('ENOENT');
  });
});

describe('what somebody else runs', () => {
  test('at the address is refused and left alone', async () => {
    const other = createServer((_, reply) => reply.end('mine'));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
    const error = await refusal(startOwnedService(await options('well', { url })));
    expect(error).toMatchObject({ name: 'EnvError', code: 'service-port' });
    expect(await (await fetch(url)).text()).toBe('mine');
    other.close();
  });

  test('is not ended because a record names its pid with another start time', async () => {
    const stranger = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { detached: true });
    strangers.push(stranger);
    // Start times are told apart to a clock tick.
    await new Promise((resolve) => setTimeout(resolve, 50));
    const chosen = await options('well');
    const service = await startOwnedService(chosen);
    const record = JSON.parse(readFileSync(join(chosen.folder, 'child.json'), 'utf8'));
    await service.stop();
    writeFileSync(join(chosen.folder, 'child.json'), JSON.stringify({ ...record, pid: stranger.pid }));
    await (await startOwnedService({ ...(await options('well')), folder: chosen.folder })).stop();
    expect(alive(stranger.pid!)).toBe(true);
  });
});

test('a child that an earlier process left behind is ended before the next one is started', async () => {
  const chosen = await options('well');
  const service = await startOwnedService(chosen);
  // As after SIGKILL: the record stays, and the child runs on at the very address.
  const next = await startOwnedService(chosen);
  expect(alive(service.pid)).toBe(false);
  expect(await (await fetch(next.url)).text()).toBe(String(next.pid));
  await next.stop();
});
