// The German services through our clients: the same prompts, observations and verdicts as in process, over both
// protocols, directly and from a worker; and no session left behind.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { replayEpisode } from '../../src/environments/german-replay.ts';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import type { ServicePort } from '../../src/environments/service/port.ts';
import { type SpawnedService, spawnNemoGym, spawnOpenEnv } from '../../workers/service-node.ts';
import { GERMAN_VERDICT_TOOL } from '../../workers/services/german-openenv.ts';
import { PROTOCOLS, type Protocol, serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { spawnWorker } from '../../workers/spawn.ts';
import { germanPort, play, tasks, transcriptOf, trueVerdict } from './support/german.ts';

const serve = (protocol: Protocol, maxSessions = 64): Promise<ServiceHandle> =>
  serveGerman({ protocol, maxSessions, version: '0.1.0' });

describe.each(PROTOCOLS)('the German task over %s', (protocol) => {
  let service: ServiceHandle;
  let port: ServicePort;
  beforeAll(async () => {
    service = await serve(protocol);
    port = germanPort(protocol, service.url);
  });
  afterAll(() => service.stop());

  it('gives the prompts, tools, observations and verdicts of the environment in process', async () => {
    const local = createGermanEnvironment();
    const verdicts: boolean[] = [];
    for (const [i, task] of tasks.slice(0, 32).entries()) {
      const expert = transcriptOf(task, i);
      const run = async (environment: EnvironmentPort) => {
        const opened = await environment.open(task);
        const observations = [];
        for (const { tool, argumentsJson } of expert.calls) {
          observations.push(await environment.call(opened.sessionId, tool, argumentsJson));
        }
        const verdict = await environment.verify(opened.sessionId, expert.finalText, expert.invalidDispatches);
        const log = await environment.log(opened.sessionId);
        await environment.close(opened.sessionId);
        return { opened, observations, verdict, log };
      };
      const remote = await run(port);
      expect(remote).toEqual(await run(local));
      const calls = remote.verdict.log.map(({ tool, argumentsJson, observation }) => ({
        tool,
        argumentsJson,
        observation,
      }));
      const replay = replayEpisode(task, calls, expert.finalText, expert.invalidDispatches, remote.verdict);
      expect(replay.differences).toEqual([]);
      verdicts.push(remote.verdict.strict);
    }
    expect(new Set(verdicts).size).toBe(2);
    expect(service.openSessions()).toBe(0);
  });

  it('gives environment errors as the environment in process does, however the arguments are written', async () => {
    const odd: [string, string][] = [
      ['nachschlagen', '{"schluessel": "Birne"}'],
      ['nachschlagen', '{"schluessel":"Brot","mehr":1}'],
      ['nachschlagen', '{"schluessel":5}'],
      ['nachschlagen', '{}'],
      ['nachschlagen', '{"schluessel":"\\ud800"}'],
      ['nachschlagen', `{"schluessel":${' '.repeat(990)}"Brot"}`],
      ['rechner', '{"ausdruck":"1 / 0"}'],
      ['rechner', '{"ausdruck": "7 * (8 - 3)"}'],
      ['rechner', '{"ausdruck":"ä ☃ \\u2028"}'],
      ['rechner', '{"ausdruck":"1+1","ausdruck":"2+2"}'],
    ];
    const local = createGermanEnvironment();
    const [near, far] = [await local.open(tasks[0]!), await port.open(tasks[0]!)];
    for (const [tool, text] of odd) {
      expect(await port.call(far.sessionId, tool, text), text).toEqual(await local.call(near.sessionId, tool, text));
    }
    expect(await port.verify(far.sessionId, 'Antwort: 1', 2)).toEqual(
      await local.verify(near.sessionId, 'Antwort: 1', 2),
    );
    await port.close(far.sessionId);
  });

  it('never lets a model reach verify or a tool that was not declared', async () => {
    const { sessionId } = await port.open(tasks[1]!);
    for (const name of ['verify', 'seed_session', '../verify', 'close_session', 'aggregate_metrics', 'reset', 'act']) {
      const { error } = await port.call(sessionId, name, '{"final_text":"Antwort: 1","invalid_dispatches":0}');
      expect(error).toBe(true);
    }
    const verdict = await port.verify(sessionId, 'Antwort: 1', 0);
    expect(verdict.log).toEqual([]);
    await port.close(sessionId);
  });

  it('verifies once, refuses what follows, and frees the session', async () => {
    const { sessionId } = await port.open(tasks[2]!);
    expect(service.openSessions()).toBe(1);
    await port.verify(sessionId, 'Antwort: 1', 0);
    await expect(port.verify(sessionId, 'Antwort: 1', 0)).rejects.toMatchObject({ code: 'session-verified' });
    await expect(port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}')).rejects.toMatchObject({
      code: 'session-verified',
    });
    await port.close(sessionId);
    await expect(port.close(sessionId)).rejects.toMatchObject({ code: 'unknown-session' });
    expect(service.openSessions()).toBe(0);
  });

  it('frees a session that is closed before verify', async () => {
    const { sessionId } = await port.open(tasks[3]!);
    await port.call(sessionId, 'nachschlagen', '{"schluessel":"Brot"}');
    await port.close(sessionId);
    expect(service.openSessions()).toBe(0);
    expect(await port.stats()).toMatchObject({ leaked: 0, open: 0 });
  });

  it('leaves no session open after 1,000 episodes at 64 at once', async () => {
    const many = germanPort(protocol, service.url, {}, 64);
    let strict = 0;
    for (let done = 0; done < 1000; ) {
      const count = Math.min(64, 1000 - done);
      const round = Array.from({ length: count }, (_, i) => [tasks[i]!, transcriptOf(tasks[i]!, done + i)] as const);
      const opened = await Promise.all(round.map(([task]) => many.open(task)));
      expect(service.openSessions()).toBe(count);
      const verdicts = await Promise.all(
        round.map(async ([, expert], i) => {
          const { sessionId } = opened[i]!;
          for (const { tool, argumentsJson } of expert.calls) await many.call(sessionId, tool, argumentsJson);
          const verdict = await many.verify(sessionId, expert.finalText, expert.invalidDispatches);
          await many.close(sessionId);
          return verdict;
        }),
      );
      expect(service.openSessions()).toBe(0);
      strict += verdicts.filter((verdict) => verdict.strict).length;
      done += count;
    }
    expect(await many.stats()).toMatchObject({ opened: 1000, verified: 1000, lost: 0, leaked: 0, open: 0 });
    expect(strict).toBeGreaterThan(300);
  });

  it('holds 256 sessions at once', async () => {
    const large = await serve(protocol, 256);
    const wide = germanPort(protocol, large.url, {}, 256);
    const opened = await Promise.all(Array.from({ length: 256 }, (_, i) => wide.open(tasks[i % 64]!)));
    expect(large.openSessions()).toBe(256);
    const answers = await Promise.all(
      opened.map(({ sessionId }) => wide.call(sessionId, 'rechner', '{"ausdruck":"6*7"}')),
    );
    expect(new Set(answers.map(({ content }) => content))).toEqual(new Set(['42']));
    await Promise.all(opened.map(({ sessionId }) => wide.close(sessionId)));
    expect(large.openSessions()).toBe(0);
    await large.stop();
  });
});

describe.each(PROTOCOLS)('the %s client in its worker', (protocol) => {
  it('scores as in process, and its connections end with it', async () => {
    const service = await serve(protocol);
    const options = { url: service.url, maxSessions: 8 };
    const spawned: SpawnedService =
      protocol === 'openenv'
        ? await spawnOpenEnv({ ...options, tasks: 'german', verdictTool: GERMAN_VERDICT_TOOL })
        : await spawnNemoGym({ ...options, tasks: 'german' });
    const pairs = tasks.slice(0, 8).map((task, i) => [task, transcriptOf(task, i)] as const);
    const remote = await Promise.all(pairs.map(([task, expert]) => play(spawned.port, task, expert)));
    expect(remote).toEqual(await Promise.all(pairs.map(([task, expert]) => trueVerdict(task, expert))));
    await spawned.port.open(tasks[0]!);
    expect(service.openSessions()).toBe(1);
    await spawned.stop();
    await expect.poll(() => service.openSessions()).toBe(0);
    await service.stop();
  });
});

it('a client in its worker keeps its session while this thread is busy, and one on this thread loses it', async () => {
  // The server has a worker of its own; its pings must be answered within 150 ms.
  const server = await spawnWorker<{ url(): Promise<string> }>({
    name: 'german-service',
    module: new URL('./support/german-service.worker.ts', import.meta.url),
    methods: ['url'],
  });
  const url = await server.service.url();
  const options = { url, maxSessions: 1, tasks: 'german', verdictTool: GERMAN_VERDICT_TOOL } as const;
  const spawned = await spawnOpenEnv(options);
  const near = germanPort('openenv', url);
  const sessions = [await spawned.port.open(tasks[0]!), await near.open(tasks[1]!)] as const;
  const until = performance.now() + 1_000;
  while (performance.now() < until);
  const call = (port: ServicePort, i: 0 | 1) => port.call(sessions[i].sessionId, 'rechner', '{"ausdruck":"1+1"}');
  expect(await call(spawned.port, 0)).toEqual({ content: '2', error: false });
  await expect(call(near, 1)).rejects.toMatchObject({ code: 'service-lost' });
  await near.dispose();
  await spawned.stop();
  await server.stop();
});
