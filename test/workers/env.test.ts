// The German environment in its worker: the same answers as in process, its errors, its loss, and both loaders.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { chooseImperfection, expertTranscript } from '../../src/environments/german-expert.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { EnvironmentPort, Task } from '../../src/environments/port.ts';
import { EnvError } from '../../src/lib/errors.ts';
import type { Verdict } from '../../src/rollout/episode.ts';
import { type SpawnedEnvironment, spawnGermanEnvironment } from '../../workers/env-node.ts';

const tasks = trainTasks(20261020, 30);

async function play(port: EnvironmentPort, task: Task, index: number): Promise<Verdict> {
  const expert = expertTranscript(task, { imperfection: chooseImperfection(1, index) });
  const { sessionId, messages, tools } = await port.open(task);
  expect([messages.length, tools.length]).toEqual([2, 2]);
  for (const { tool, argumentsJson, observation } of expert.calls) {
    expect((await port.call(sessionId, tool, argumentsJson)).content).toBe(observation);
  }
  const verdict = await port.verify(sessionId, expert.finalText, expert.invalidDispatches);
  expect(await port.log(sessionId)).toEqual(verdict.log);
  await port.close(sessionId);
  return verdict;
}

describe('the environment worker', () => {
  let environment: SpawnedEnvironment;
  beforeAll(async () => {
    environment = await spawnGermanEnvironment();
  });
  afterAll(() => environment.stop());

  it('scores many sessions at once exactly as the environment in process', async () => {
    const remote = await Promise.all(tasks.map((task, i) => play(environment.port, task, i)));
    const local = createGermanEnvironment();
    expect(remote).toEqual(await Promise.all(tasks.map((task, i) => play(local, task, i))));
    expect(new Set(remote.map((verdict) => verdict.strict)).size).toBe(2);
  });

  it('keeps class and code of its errors', async () => {
    const error = await environment.port.call('nobody', 'rechner', '{}').catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(EnvError);
    expect(error).toMatchObject({ code: 'unknown-session', exitCode: 4 });
    const foreign = await environment.port.open({ id: 'x', payload: {} }).catch((reason: unknown) => reason);
    expect(foreign).toMatchObject({ name: 'EnvError', code: 'bad-task' });
  });
});

it('rejects a call with EnvError when its worker is killed in the middle of it', async () => {
  const { port, kill } = await spawnGermanEnvironment();
  const { sessionId } = await port.open(tasks[0]!);
  const call = port.call(sessionId, 'rechner', '{"ausdruck": "1+1"}').catch((reason: unknown) => reason);
  await kill();
  // The answer may have been faster than the end of the thread, but a call never hangs and later ones all fail.
  const outcome = await call;
  if (outcome instanceof Error) expect(outcome).toBeInstanceOf(EnvError);
  for (const later of [
    port.open(tasks[0]!),
    port.verify(sessionId, '', 0),
    port.log(sessionId),
    port.close(sessionId),
  ]) {
    await expect(later).rejects.toThrow(EnvError);
  }
});

it('loads its .ts module under node --import tsx too', async () => {
  const child = fileURLToPath(new URL('./load-child.ts', import.meta.url));
  const root = fileURLToPath(new URL('../..', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', child], {
    cwd: root,
    timeout: 60_000,
  });
  expect(JSON.parse(stdout)).toMatchObject({ strict: true, reward: 1 });
});
