// The OpenEnv client as an environment port: prompts, tools and rewards of any environment, and what must never happen:
// a retry, a shifted reply, a fresh environment in the place of a lost one, a zero for a failure of the service.
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { createOpenEnvPort, type OpenEnvOptions } from '../../src/environments/openenv/client.ts';
import type { Task } from '../../src/environments/port.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import type { ServicePort } from '../../src/environments/service/port.ts';
import { nodeSocket } from '../../src/environments/service/socket-node.ts';
import { toWire, type WireMap } from '../../src/environments/service/wire-json.ts';
import { EnvError } from '../../src/lib/errors.ts';
import type { EnvironmentClass } from '../../workers/services/openenv-environment.ts';
import { type ServiceHandle, serveOpenEnv } from '../../workers/services/openenv-server.ts';
import { callToolResult, toolBox } from '../../workers/services/openenv-tools.ts';
import { lineClass, toolClass } from '../wire/support/line-env.ts';
import { readTranscript } from '../wire/support/transcript.ts';

const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

const code = (error: unknown): string => (error instanceof EnvError ? error.code : `no EnvError: ${String(error)}`);
const portOf = (url: string, options: Partial<OpenEnvOptions> = {}): ServicePort => {
  const port = createOpenEnvPort(
    { url, maxSessions: 8, tasks: 'reset', ...options },
    { connect: nodeSocket, http: nodeHttp },
  );
  stops.unshift(() => port.dispose());
  return port;
};
async function serve(environment: EnvironmentClass, maxSessions = 8): Promise<ServiceHandle> {
  const handle = await serveOpenEnv({ environment, maxSessions });
  stops.push(() => handle.stop());
  return handle;
}
const task = (payload: Record<string, unknown> = {}, id = 'line'): Task => ({ id, payload });

/** A WebSocket server by hand; `answer` gets each message and its number on that socket. */
async function scripted(answer: (socket: WebSocket, type: string, index: number, connection: number) => void) {
  const schema = readTranscript('openenv', 'http-info').lines[3]!.body!;
  const server = createServer((_request, response) => response.end(schema));
  const sockets = new WebSocketServer({ server });
  let connections = 0;
  const heard: string[] = [];
  sockets.on('connection', (socket) => {
    const connection = connections++;
    let index = 0;
    socket.on('error', () => {});
    socket.on('message', (data: Buffer) => {
      heard.push(data.toString('utf8'));
      answer(socket, JSON.parse(data.toString('utf8')).type, index++, connection);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(async () => {
    for (const socket of sockets.clients) socket.terminate();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, heard, connections: () => connections };
}
const observation = (fields: Record<string, unknown>, message = 'go'): string =>
  JSON.stringify({ type: 'observation', data: { observation: { message }, done: false, ...fields } });
const state = '{"type":"state","data":{"episode_id":"e","step_count":1}}';

/** Answers as a conforming server does, with this reward for every step. */
const normal = (reward: unknown) => (socket: WebSocket, type: string) => {
  if (type === 'close') socket.close(1000);
  else socket.send(type === 'state' ? state : observation({ reward: type === 'reset' ? null : reward }));
};

describe('an environment without tools', () => {
  it('offers its action as one tool, answers with its observation, and is scored by its last reward', async () => {
    const port = portOf((await serve(lineClass())).url);
    const { sessionId, messages, tools } = await port.open(
      task({ reset: { start: 1 }, messages: [{ role: 'system', content: 'Walk.' }] }),
    );
    expect(messages).toEqual([
      { role: 'system', content: 'Walk.' },
      { role: 'user', content: 'reset 1' },
    ]);
    expect(tools.map(({ function: f }) => f.name)).toEqual(['act']);
    expect(Object.keys(tools[0]!.function.parameters['properties'] as object)).toEqual(['op', 'by', 'text']);
    const moved = await port.call(sessionId, 'act', '{"op":"move","by":-1}');
    expect(moved).toEqual({ content: '{"position":0,"goal":2,"message":"moved","value":null}', error: false });
    // Refused and raising actions are the policy's, and the session goes on.
    expect(await port.call(sessionId, 'act', '{"op":"fly"}')).toMatchObject({ error: true });
    expect(await port.call(sessionId, 'act', '{"op":"raise","text":"ouch"}')).toEqual({ content: 'ouch', error: true });
    await port.call(sessionId, 'act', '{"op":"move","by":2}');
    const verdict = await port.verify(sessionId, 'done', 1);
    expect(verdict).toMatchObject({ reward: 1, strict: true, toolErrors: 2, invalidDispatches: 1 });
    expect(verdict.log.map(({ error }) => error)).toEqual([false, true, true, false]);
    await port.close(sessionId);
  });

  it('sums rewards where it is told to, and keeps integers beyond 2^53 whole in the text', async () => {
    const port = portOf((await serve(lineClass())).url, { rewardRule: 'sum' });
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move","by":1}');
    const { content } = await port.call(sessionId, 'act', '{"op":"value","text":"int"}');
    expect(content).toContain('"value":9007199254740993');
    const { reward } = await port.verify(sessionId, '', 0);
    expect(Math.abs(reward - 0.9) <= 1e-12).toBe(true);
    await port.close(sessionId);
  });

  it('sends no step after the end of an episode, and keeps its last reward', async () => {
    const { url, heard } = await scripted((socket, type, index) => {
      if (type === 'close') socket.close(1000);
      else if (type === 'state') socket.send(state);
      else socket.send(observation({ reward: [null, 0.75, 0][index], done: index === 1 }));
    });
    const port = portOf(url);
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move","by":2}');
    const late = await port.call(sessionId, 'act', '{"op":"move","by":2}');
    expect(late).toEqual({ content: '{"error":"the episode is over"}', error: true });
    expect(await port.verify(sessionId, '', 0)).toMatchObject({ reward: 0.75, toolErrors: 1 });
    expect(heard.filter((text) => text.includes('"step"'))).toHaveLength(1);
  });

  it('has the reward that the client was told for a policy that took no step, and else none', async () => {
    const { url } = await scripted(normal(1));
    for (const [options, wanted] of [
      [{ rewardWithoutSteps: -0.5 }, { reward: -0.5, strict: false }],
      [{}, 'no-verdict'],
    ] as const) {
      const port = portOf(url, options);
      const { sessionId } = await port.open(task());
      const verdict = await port.verify(sessionId, 'I give up.', 0).catch(code);
      if (typeof wanted === 'string') expect(verdict).toBe(wanted);
      else expect(verdict).toMatchObject(wanted);
      await port.close(sessionId).catch(() => {});
    }
    // One that took a step is scored by it.
    const port = portOf(url, { rewardWithoutSteps: -0.5 });
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move"}');
    expect(await port.verify(sessionId, '', 0)).toMatchObject({ reward: 1 });
  });

  it('brings reward components of top-level metadata as parts', async () => {
    const metadata = { reward_components: { form: 0.25 } };
    const { url } = await scripted((socket, type) => {
      if (type === 'close') socket.close(1000);
      else if (type === 'state') socket.send(state);
      else socket.send(observation({ reward: type === 'reset' ? null : 0.25, metadata }));
    });
    const port = portOf(url);
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move"}');
    expect(await port.verify(sessionId, '', 0)).toMatchObject({ reward: 0.25, parts: { form: 0.25 } });
  });
});

describe('an environment of tools', () => {
  it('offers the tools of list_tools and reads results and errors as the upstream client does', async () => {
    const port = portOf((await serve(toolClass())).url);
    const { sessionId, tools } = await port.open(task({ messages: [{ role: 'user', content: 'Add.' }] }));
    expect(tools.map(({ function: f }) => [f.name, f.description])).toEqual([['add', 'Add two integers.']]);
    expect(await port.call(sessionId, 'add', '{"a":2,"b":3}')).toEqual({ content: '5', error: false });
    const unlucky = await port.call(sessionId, 'add', '{"a":13,"b":3}');
    expect(unlucky).toEqual({ content: "Error calling tool 'add': unlucky number", error: true });
    expect((await port.call(sessionId, 'add', '{"a":1}')).content).toContain('Missing required argument');
    await port.close(sessionId);
  });

  it('has no verdict where no reward came, and says so instead of scoring zero', async () => {
    // ToolEnv's tools give no reward; its reset gives 0.0, which is no score of the episode.
    const port = portOf((await serve(toolClass())).url);
    const { sessionId } = await port.open(task({ messages: [{ role: 'user', content: 'Add.' }] }));
    await port.call(sessionId, 'add', '{"a":2,"b":3}');
    expect(await port.verify(sessionId, '5', 0).catch(code)).toBe('no-verdict');
  });

  it('is a lost session when the reaper closed the environment behind the open socket', async () => {
    const handle = await serveOpenEnv({ environment: toolClass(), sessionTimeoutMs: 60, reapEveryMs: 10 });
    stops.push(() => handle.stop());
    const port = portOf(handle.url);
    const { sessionId } = await port.open(task({ messages: [{ role: 'user', content: 'Add.' }] }));
    await expect.poll(() => handle.openSessions()).toBe(0);
    expect(await port.call(sessionId, 'add', '{"a":2,"b":3}').catch(code)).toBe('service-lost');
  });
});

describe('G1: an infrastructure failure is never a reward', () => {
  it.each([
    ['reward null', null, 'no-verdict'],
    ['reply without a reward', undefined, 'no-verdict'],
    ['reward "0"', '0', 'service-protocol'],
  ])('%s', async (_name, reward, wanted) => {
    const port = portOf((await scripted(normal(reward))).url);
    const { sessionId } = await port.open(task());
    const call = await port.call(sessionId, 'act', '{"op":"move"}').catch(code);
    const verdict = await port.verify(sessionId, '', 0).catch(code);
    expect([call, verdict]).toContain(wanted);
    expect(typeof verdict).toBe('string');
  });

  it('reward NaN, as Python writes it', async () => {
    const { url } = await scripted((socket, type) =>
      socket.send(type === 'reset' ? observation({ reward: null }) : observation({ reward: 7 }).replace('7', 'NaN')),
    );
    const port = portOf(url);
    const { sessionId } = await port.open(task());
    expect(await port.call(sessionId, 'act', '{"op":"move"}').catch(code)).toBe('service-protocol');
    expect(await port.verify(sessionId, '', 0).catch(code)).toBe('service-protocol');
  });

  it('a zero that the environment gave is a verdict', async () => {
    const port = portOf((await scripted(normal(0))).url);
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move"}');
    expect(await port.verify(sessionId, '', 0)).toMatchObject({ reward: 0, strict: false });
  });

  it('a connection that is refused, after the time for opening', async () => {
    const { url } = await scripted(normal(0));
    await stops.pop()!();
    const port = portOf(url, { deadlines: { openMs: 200 } });
    expect(await port.open(task()).catch(code)).toBe('service-refused');
  });
});

describe.each([1000, 1011, null])('G4: a socket that the server closes with %s', (closeCode) => {
  const end = (socket: WebSocket) => (closeCode === null ? socket.terminate() : socket.close(closeCode));

  it('before reset is replaced for the next session', async () => {
    const { url, connections } = await scripted((socket, type, _index, connection) => {
      if (connection === 0) end(socket);
      else normal(1)(socket, type);
    });
    const port = portOf(url);
    expect(await port.open(task()).catch(code)).toBe('service-lost');
    const { sessionId } = await port.open(task());
    // Nothing came of the first opening, so its number is used again.
    expect(sessionId).toBe('line#1');
    expect(connections()).toBe(2);
  });

  it('between two steps ends the session, and no fresh one takes its place', async () => {
    const { url, connections, heard } = await scripted((socket, type, index) => {
      normal(1)(socket, type);
      if (index === 1) setTimeout(() => end(socket), 20);
    });
    const port = portOf(url);
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move"}');
    await new Promise((resolve) => setTimeout(resolve, 80));
    expect(await port.call(sessionId, 'act', '{"op":"move"}').catch(code)).toBe('service-lost');
    expect(await port.verify(sessionId, '', 0).catch(code)).toBe('service-lost');
    expect([connections(), heard.length]).toEqual([1, 2]);
  });

  it('after the request and before the reply ends the session, and nothing is sent again', async () => {
    const { url, heard } = await scripted((socket, type, index) =>
      index === 1 ? end(socket) : normal(1)(socket, type),
    );
    const port = portOf(url);
    const { sessionId } = await port.open(task());
    expect(await port.call(sessionId, 'act', '{"op":"move"}').catch(code)).toBe('service-lost');
    expect(heard).toHaveLength(2);
  });

  it('after the last reply leaves the verdict as it is', async () => {
    const { url } = await scripted((socket, type) => {
      normal(1)(socket, type);
      if (type === 'state') end(socket);
    });
    const port = portOf(url);
    const { sessionId } = await port.open(task());
    await port.call(sessionId, 'act', '{"op":"move"}');
    expect(await port.verify(sessionId, '', 0)).toMatchObject({ reward: 1 });
    await port.close(sessionId);
  });
});

describe('G8: a reply that comes after the deadline', () => {
  it('leaves one effect, one request and a failed session', async () => {
    let count = 0;
    let made = 0;
    const integer = { type: 'object', properties: {}, additionalProperties: false };
    const base = toolClass();
    const environment: EnvironmentClass = {
      ...base,
      create() {
        made += 1;
        const instance = base.create();
        const box = toolBox([
          {
            name: 'increment',
            title: 'Increment',
            description: 'Adds 1.',
            inputSchema: toWire(integer),
            outputSchema: toWire({}),
            arguments: {},
            async run() {
              count += 1;
              await new Promise((resolve) => setTimeout(resolve, 250));
              return { ok: true, result: callToolResult(BigInt(count)) };
            },
          },
        ]);
        return { ...instance, tools: () => box };
      },
    };
    const handle = await serve(environment);
    const port = portOf(handle.url, { deadlines: { replyMs: 100 } });
    const { sessionId } = await port.open(task({ messages: [{ role: 'user', content: 'Add 1.' }] }));
    expect(await port.call(sessionId, 'increment', '{}').catch(code)).toBe('service-timeout');
    await expect.poll(() => handle.openSessions()).toBe(0);
    expect([count, made, (await port.log(sessionId)).length]).toEqual([1, 1, 0]);
    expect(await port.call(sessionId, 'increment', '{}').catch(code)).toBe('service-timeout');
    expect(count).toBe(1);
  });
});

describe('capacity', () => {
  it('is learnt from the server, and waiting sessions get their turn', async () => {
    const handle = await serve(lineClass(), 2);
    const port = portOf(handle.url, { maxSessions: 8 });
    let most = 0;
    const episode = async (i: number): Promise<number> => {
      const { sessionId } = await port.open(task({}, `line-${i}`));
      most = Math.max(most, handle.openSessions());
      await port.call(sessionId, 'act', '{"op":"move","by":2}');
      const { reward } = await port.verify(sessionId, '', 0);
      await port.close(sessionId);
      return reward;
    };
    expect(await Promise.all(Array.from({ length: 12 }, (_, i) => episode(i)))).toEqual(Array(12).fill(1));
    expect(most).toBe(2);
    expect(await port.stats()).toMatchObject({ limit: 2, open: 0, leaked: 0, lost: 0 });
  });
});

describe('the first observation', () => {
  it('must be one for all members of a group', async () => {
    let resets = 0;
    const base = lineClass();
    const environment: EnvironmentClass = {
      ...base,
      create() {
        const instance = base.create();
        return {
          ...instance,
          // A server that takes a seed and ignores it.
          async reset(kwargs) {
            const outcome = await instance.reset(kwargs);
            (outcome.observation as WireMap).set('message', `draw ${resets++}`);
            return outcome;
          },
        };
      },
    };
    const handle = await serve(environment);
    const port = portOf(handle.url);
    await port.open(task({ reset: { seed: 7 } }));
    expect(await port.open(task({ reset: { seed: 7 } })).catch(code)).toBe('group-fingerprint');
    expect(handle.openSessions()).toBe(1);
  });
});

describe('a peer that stops reading', () => {
  it('ends the session at the deadline for sending', async () => {
    const schema = readTranscript('openenv', 'http-info').lines[3]!.body!;
    const open: Socket[] = [];
    const server = createTcpServer((socket) => {
      open.push(socket);
      socket.on('error', () => {});
      socket.once('data', (chunk) => {
        const text = chunk.toString('latin1');
        if (text.startsWith('GET /schema')) {
          socket.end(
            `HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ${Buffer.byteLength(schema)}\r\n\r\n${schema}`,
          );
          return;
        }
        const key = /sec-websocket-key: (.*)\r/i.exec(text)![1]!;
        void import('node:crypto').then(({ createHash }) => {
          const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
          socket.pause();
          socket.write(
            ['HTTP/1.1 101 Switching Protocols', 'upgrade: websocket', 'connection: Upgrade']
              .concat(`sec-websocket-accept: ${accept}\r\n\r\n`)
              .join('\r\n'),
          );
        });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    stops.push(async () => {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const port = portOf(url, { deadlines: { sendMs: 200, replyMs: 30_000, closeMs: 100 } });
    const opened = port.open(task({ reset: { blob: 'x'.repeat(48 * 1024 * 1024) } })).then(
      () => 'open',
      (error: EnvError) => error.message,
    );
    expect(await opened).toContain('the peer took no bytes for 200 ms');
  });
});

it('a task that is none is refused before anything is sent', async () => {
  const { url, heard } = await scripted(normal(1));
  const port = portOf(url);
  const wrong = port.open(task({ resett: {} }));
  await expect(wrong).rejects.toThrowErrorMatchingInlineSnapshot(
    `[EnvError: reading task line: "payload": found {"resett":{}} (Unrecognized key: "resett"); wanted {"reset": {...}, "messages": [...]}, both optional. Correct the task.]`,
  );
  expect(heard).toEqual([]);
});
