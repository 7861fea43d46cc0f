// The OpenEnv package itself: our client drives an environment that it serves, and its client drives our service.
import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { createOpenEnvPort } from '../../src/environments/openenv/client.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import { nodeSocket } from '../../src/environments/service/socket-node.ts';
import { serveGerman } from '../../workers/services/german-service.ts';
import { germanPort, tasks, transcriptOf } from '../wire/support/german.ts';
import { expectGermanParity } from './german-parity.ts';
import { pythonWith, startServer } from './python-modules.ts';

const python = pythonWith('openenv.core.env_server.http_server', 'fastmcp', 'uvicorn');
const reason = python ? '' : ' (skipped: no Python with openenv; name one in SHADERL_INTEROP_PYTHON)';
const here = fileURLToPath(new URL('./python/', import.meta.url));

describe.skipIf(!python)(`an environment served by the OpenEnv package${reason}`, () => {
  let server: ChildProcess;
  let url: string;
  beforeAll(async () => {
    ({ server, url } = await startServer(
      python!,
      (port) => ['-m', 'uvicorn', 'openenv_tools:app', '--port', port, '--log-level', 'warning'],
      '/health',
      60_000,
    ));
  }, 90_000);
  afterAll(() => server.kill('SIGKILL'));

  it('gives our client its tools, results, errors, cap and capacity', async () => {
    const transports = { connect: nodeSocket, http: nodeHttp };
    const port = createOpenEnvPort({ url, maxSessions: 8, tasks: 'reset' }, transports);
    const payload = { messages: [{ role: 'user', content: 'Add.' }] };
    const { sessionId, messages, tools } = await port.open({ id: 'add', payload });
    expect(messages).toEqual(payload.messages);
    expect(tools.map(({ function: f }) => [f.name, f.description])).toEqual([['add', 'Add two integers.']]);
    expect(await port.call(sessionId, 'add', '{"a":2,"b":3}')).toEqual({ content: '5', error: false });
    expect((await port.call(sessionId, 'add', '{"a":13,"b":3}')).content).toContain('unlucky number');
    expect(await port.call(sessionId, 'add', '{"a":1}')).toMatchObject({ error: true });
    await port.close(sessionId);
    const sums = await Promise.all(
      Array.from({ length: 12 }, async (_, i) => {
        const opened = await port.open({ id: `add-${i}`, payload });
        const { content } = await port.call(opened.sessionId, 'add', `{"a":${i},"b":1}`);
        await port.close(opened.sessionId);
        return content;
      }),
    );
    expect(sums).toEqual(Array.from({ length: 12 }, (_, i) => String(i + 1)));
    expect(await port.stats()).toMatchObject({ limit: 4, lost: 0, leaked: 0, open: 0 });
  });
});

describe.skipIf(!python)(`the German task, written in Python and served by the OpenEnv package${reason}`, () => {
  it('gives our client the prompts, tools, observations and verdicts of the environment in process', async () => {
    const { server, url } = await startServer(python!, (port) => ['openenv_german.py', port], '/health', 60_000);
    try {
      const port = germanPort('openenv', url, {}, 8);
      await expectGermanParity(port, 32);
      expect(await port.stats()).toMatchObject({ verified: 32, lost: 0, leaked: 0, open: 0 });
    } finally {
      server.kill('SIGKILL');
    }
  }, 120_000);
});

describe.skipIf(!python)(`the OpenEnv package's client on our service${reason}`, () => {
  it('gets the prompts, observations and verdicts of the environment in process', async () => {
    const service = await serveGerman({ protocol: 'openenv', maxSessions: 4, version: '0.1.0' });
    const chosen = tasks.slice(0, 12).map((task, i) => ({ task, expert: transcriptOf(task, i) }));
    const input = chosen.map(({ task, expert }) => ({ task: task.payload, task_id: task.id, ...expert }));
    const child = spawn(python!, ['openenv_client.py', service.url], { cwd: here });
    let out = '';
    child.stdout.on('data', (chunk) => {
      out += chunk;
    });
    child.stdin.end(JSON.stringify(input));
    expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(0);
    const played = JSON.parse(out);
    const local = createGermanEnvironment();
    for (const [i, { task, expert }] of chosen.entries()) {
      const { sessionId, messages, tools } = await local.open(task);
      const observations = [];
      for (const { tool, argumentsJson } of expert.calls) {
        observations.push(await local.call(sessionId, tool, argumentsJson));
      }
      const { strict, reward, parts } = await local.verify(sessionId, expert.finalText, expert.invalidDispatches);
      expect(played[i]).toMatchObject({
        messages,
        observations,
        reward,
        done: true,
        verdict: { strict, reward, parts },
      });
      expect(played[i].tools.map((tool: { name: string }) => tool.name)).toEqual(tools.map((t) => t.function.name));
    }
    await expect.poll(() => service.openSessions()).toBe(0);
    await service.stop();
  });
});
