// `shaderl status --follow` as a process beside a writer, on this host and on another one.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { acquireLock } from '../../src/experiment/lock-node.ts';
import { experimentStatus } from '../../src/experiment/status-node.ts';
import { openJournal } from '../../src/journal.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { preparedPlan, writeInputs } from '../support/experiment-fixture.ts';
import { start } from '../support/experiment-program.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const base = mkdtempSync(join(tmpdir(), 'shaderl-follow-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: ReturnType<typeof writeInputs>;
beforeAll(() => {
  inputs = writeInputs(base);
});

async function begun() {
  const plan = await preparedPlan(base, inputs);
  const { journal } = await openJournal(createNodeStorage(plan.folder), 'journal.jsonl', () => '2026-01-01T00:00:00Z');
  await journal.append({ kind: 'experiment-start', data: { planSha256: plan.sha256 } });
  const data = { attempt: 1, host: hostname(), pid: process.pid, resume: false, chargedSeconds: 0, versions: {} };
  await journal.append({ kind: 'attempt-start', data });
  return { plan, journal };
}

/** Follows a folder and waits for texts on its stderr. */
function follow(folder: string) {
  const run = start(root, root, ['status', folder, '--follow']);
  let text = '';
  run.child.stderr!.on('data', (chunk: string) => {
    text += chunk;
  });
  let ended = false;
  void run.done.then(() => {
    ended = true;
  });
  const says = async (part: string) => {
    while (!text.includes(part) && !ended) await new Promise((done) => setTimeout(done, 20));
    expect(text).toContain(part);
  };
  return { ...run, says, ended: () => ended };
}

describe('shaderl status --follow', () => {
  test('prints lines as they are written, without heartbeats, and ends with the status when the lock is released', async () => {
    const { plan, journal } = await begun();
    const lock = acquireLock(plan.folder);
    const following = follow(plan.folder);
    await following.says('attempt-start  attempt 1');
    await journal.append({ kind: 'heartbeat', data: { attempt: 1, stage: null, seconds: 15 } });
    await journal.append({ kind: 'stage-start', data: { attempt: 1, stage: 'preflight' } });
    await following.says('stage-start  attempt 1  stage preflight');
    expect(following.ended()).toBe(false);
    const data = { attempt: 1, status: 'interrupted' as const, reason: 'asked to stop', seconds: 16.5 };
    await journal.append({ kind: 'attempt-end', data });
    lock.release();
    const { exitCode, stdout, stderr } = await following.done;
    expect(exitCode).toBe(0);
    expect(stderr).toContain('attempt-end  attempt 1  status interrupted  reason asked to stop  seconds 16.5');
    expect(stderr).not.toContain('heartbeat');
    expect(stdout).toMatch(/state +interrupted: asked to stop/);
    expect(stdout).toMatch(/budget +16 min 23 s left of 16 min 40 s/);
  }, 30_000);

  test('goes on beside a writer on another host, which it names, until that lock is released or somebody stops it', async () => {
    const { plan, journal } = await begun();
    const holder = { schema: 'shaderl.lock/1', host: 'node17', pid: 4711, started: 'x', released: false };
    mkdirSync(join(plan.folder, 'lock'));
    writeFileSync(join(plan.folder, 'lock/000001.json'), JSON.stringify(holder));
    expect(await experimentStatus(plan.folder)).toMatchObject({
      state: 'held elsewhere',
      writer: { host: 'node17', pid: 4711 },
    });
    const following = follow(plan.folder);
    await following.says('attempt-start  attempt 1');
    await new Promise((done) => setTimeout(done, 700));
    await journal.append({ kind: 'stage-start', data: { attempt: 1, stage: 'preflight' } });
    await following.says('stage-start  attempt 1  stage preflight');
    expect(following.ended()).toBe(false);
    following.child.kill('SIGINT');
    const { exitCode, stdout, stderr } = await following.done;
    expect(exitCode).toBe(0);
    expect(stderr).not.toContain('stopping');
    expect(stdout).toMatch(/state +held elsewhere \(pid 4711 on node17\)/);
  }, 30_000);
});
