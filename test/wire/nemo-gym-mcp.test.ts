// NeMo Gym's tools over MCP: our client and our reference service together, the service against what nemo-gym 0.7.0
// with mcp 1.30.0 answered on the wire, and the client against servers that break the rules.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { createNemoGymPort, type NemoGymOptions } from '../../src/environments/nemo-gym/client.ts';
import type { EnvironmentPort, Task } from '../../src/environments/port.ts';
import { germanRow } from '../../src/environments/service/german-tasks.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import { serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { tasks, transcriptOf } from './support/german.ts';

let service: ServiceHandle;
beforeAll(async () => {
  service = await serveGerman({ protocol: 'nemo-gym', maxSessions: 32, version: '0.1.0', mcp: true });
});
afterAll(() => service.stop());

const portOf = (url: string, options: Partial<NemoGymOptions> = {}) =>
  createNemoGymPort({ url, maxSessions: 8, tasks: 'german', ...options }, nodeHttp);

/** The row of a task without its tools. */
function bareRow(task: Task): Task {
  const row = germanRow(task) as { responses_create_params: object };
  return { id: task.id, payload: { ...row, responses_create_params: { ...row.responses_create_params, tools: [] } } };
}

async function episode(environment: EnvironmentPort, task: Task, index: number, shape = (given: Task) => given) {
  const expert = transcriptOf(task, index);
  const opened = await environment.open(shape(task));
  const observations = [];
  for (const { tool, argumentsJson } of expert.calls) {
    observations.push(await environment.call(opened.sessionId, tool, argumentsJson));
  }
  const verdict = await environment.verify(opened.sessionId, expert.finalText, expert.invalidDispatches);
  await environment.close(opened.sessionId);
  return { opened, observations, verdict };
}

describe('the German task with its tools over MCP', () => {
  it('has the observations and verdicts of the environment in process', async () => {
    const port = portOf(service.url, { mcp: 'always' });
    for (const [i, task] of tasks.slice(0, 12).entries()) {
      expect(await episode(port, task, i)).toEqual(await episode(createGermanEnvironment(), task, i));
    }
    expect(service.openSessions()).toBe(0);
  });

  it('gives its tools to rows that declare none', async () => {
    const port = portOf(service.url, { tasks: 'row' });
    for (const [i, task] of tasks.slice(12, 16).entries()) {
      expect(await episode(port, task, i, bareRow)).toEqual(await episode(createGermanEnvironment(), task, i));
    }
    const off = portOf(service.url, { tasks: 'row', mcp: 'never' });
    const { sessionId, tools } = await off.open(bareRow(tasks[0]!));
    expect(tools).toEqual([]);
    await off.close(sessionId);
  });

  it('never lets a model reach a route or a tool that was not declared', async () => {
    const port = portOf(service.url, { mcp: 'always' });
    const { sessionId } = await port.open(tasks[1]!);
    for (const name of ['verify', 'seed_session', 'close_session', 'mcp', 'tools/list']) {
      expect((await port.call(sessionId, name, '{}')).error).toBe(true);
    }
    expect((await port.verify(sessionId, 'Antwort: 1', 0)).log).toEqual([]);
    await port.close(sessionId);
  });
});

describe('the reference service at /mcp', () => {
  const accept = 'application/json, text/event-stream';
  const row = JSON.stringify(germanRow(tasks[0]!));
  let token: Record<string, string>;
  async function post(path: string, body: string, headers: Record<string, string> = {}, method = 'POST') {
    const sent = method === 'POST' ? { body } : {};
    const url = `${service.url}${path}`;
    const reply = await fetch(url, { method, headers: { 'content-type': 'application/json', ...headers }, ...sent });
    return { status: reply.status, type: reply.headers.get('content-type'), text: await reply.text() };
  }
  const rpc = (method: string, params: object | null, headers: Record<string, string> = token) =>
    post('/mcp', JSON.stringify({ jsonrpc: '2.0', id: 1, method, ...(params ? { params } : {}) }), {
      accept,
      ...headers,
    });
  const result = (value: object) => `{"jsonrpc":"2.0","id":1,"result":${JSON.stringify(value)}}`;
  const failed = (text: string) => result({ content: [{ type: 'text', text }], isError: true });
  beforeAll(async () => {
    const { mcp } = JSON.parse((await post('/seed_session', row)).text);
    expect(mcp).toEqual({
      server_name: 'german_lookup',
      url_path: '/mcp',
      transport: 'http',
      headers: { 'X-NeMo-Gym-Session-Token': expect.stringMatching(/^[\w-]+\.[\w-]{27}$/) },
    });
    token = mcp.headers;
  });

  it('answers requests as nemo-gym does, byte for byte', async () => {
    const initialize = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'x', version: '1' } };
    expect((await rpc('initialize', initialize)).text).toContain(
      '"result":{"protocolVersion":"2025-06-18","capabilities":{"experimental":{},"tools":{"listChanged":false}},"serverInfo":{"name":"german_lookup",',
    );
    expect((await rpc('ping', null)).text).toBe('{"jsonrpc":"2.0","id":1,"result":{}}');
    for (const headers of [token, {} as Record<string, string>]) {
      const { tools } = JSON.parse((await rpc('tools/list', null, headers)).text).result;
      expect(tools.map(({ name }: { name: string }) => name)).toEqual(['nachschlagen', 'rechner']);
      expect(Object.keys(tools[0])).toEqual(['name', 'description', 'inputSchema']);
    }
    const rechner = { name: 'rechner', arguments: { ausdruck: '7 * 6' } };
    expect((await rpc('tools/call', rechner)).text).toBe(
      result({ content: [{ type: 'text', text: '42' }], isError: false }),
    );
    expect((await rpc('tools/call', { name: "no'pe", arguments: {} })).text).toBe(
      failed(`Unknown tool: "no'pe". Available tools: ['nachschlagen', 'rechner']`),
    );
    expect((await rpc('tools/call', { name: 'verify', arguments: {} })).text).toContain('Unknown tool');
    expect((await rpc('tools/call', rechner, {})).text).toBe(
      failed('Missing X-NeMo-Gym-Session-Token for Gym MCP tool call.'),
    );
    const [payload, signature] = token['X-NeMo-Gym-Session-Token']!.split('.') as [string, string];
    const forged = Buffer.from('{"sid":"another","tools":null}').toString('base64url');
    for (const bad of ['bad', `${forged}.${signature}`, `${payload}.${signature.slice(1)}x`]) {
      expect((await rpc('tools/call', rechner, { 'x-nemo-gym-session-token': bad })).text).toBe(
        failed('Invalid Gym MCP session token.'),
      );
    }
    const invalid = '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid request parameters","data":""}}';
    for (const params of [{ arguments: {} }, { name: 'rechner', arguments: [] }]) {
      expect((await rpc('tools/call', params)).text).toBe(invalid);
    }
    expect((await rpc('nothing/known', null)).text).toBe(invalid);
    expect((await rpc('resources/list', null)).text).toBe(
      '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}',
    );
  });

  it('refuses what the transport refuses, with the same statuses', async () => {
    const list = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
    const both = { accept, ...token };
    const refusal = (code: number, message: string) =>
      `{"jsonrpc":"2.0","id":"server-error","error":{"code":${code},"message":"${message}"}}`;
    expect(await post('/mcp', '{"jsonrpc":"2.0","method":"notifications/initialized"}', both)).toEqual({
      status: 202,
      type: 'application/json',
      text: '',
    });
    expect(await post('/mcp', list, { ...both, accept: '*/*' })).toMatchObject({
      status: 406,
      text: refusal(-32600, 'Not Acceptable: Client must accept application/json'),
    });
    expect(await post('/mcp', list, { ...both, 'content-type': 'text/plain' })).toEqual({
      status: 400,
      type: null,
      text: 'Invalid Content-Type header',
    });
    expect(await post('/mcp', list, { ...both, 'mcp-protocol-version': '1999-01-01' })).toMatchObject({
      status: 400,
      text: refusal(
        -32600,
        'Bad Request: Unsupported protocol version: 1999-01-01. Supported versions: 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25',
      ),
    });
    expect(await post('/mcp', '{', both)).toMatchObject({
      status: 400,
      text: refusal(-32700, 'Parse error: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)'),
    });
    for (const text of ['[]', '{"jsonrpc":"2.0","id":3}']) {
      expect((await post('/mcp', text, both)).status).toBe(400);
    }
    expect((await post('/mcp', '', { accept: 'application/json' }, 'GET')).status).toBe(406);
    expect((await post('/mcp', '', both, 'DELETE')).status).toBe(405);
    expect((await post('/mcp', '', both, 'PUT')).status).toBe(405);
    expect((await post('/mcp/', list, both)).status).toBe(200);
  });

  it('has neither the offer nor the route unless it is asked for', async () => {
    const plain = await serveGerman({ protocol: 'nemo-gym', maxSessions: 1, version: '0.1.0' });
    const seeded = await fetch(`${plain.url}/seed_session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: row,
    });
    expect(Object.keys((await seeded.json()) as object)).toEqual(['resources_session_id']);
    expect((await fetch(`${plain.url}/mcp`, { method: 'POST' })).status).toBe(404);
    await plain.stop();
  });
});

describe('the client over MCP', () => {
  const offer = { server_name: 's', url_path: '/mcp', transport: 'http', headers: { 'x-token': 't' } };
  const tool = { name: 'add', description: null, inputSchema: { type: 'object', properties: {} } };

  /** A server by hand: what seeding says, and the result (or the whole answer) of each JSON-RPC request. */
  async function scripted(seeded: object, answer: (request: Rpc) => object | string) {
    const heard: (Rpc & { headers: Record<string, unknown> })[] = [];
    const server = createServer((incoming, response) => {
      let body = '';
      incoming.on('data', (chunk) => {
        body += chunk;
      });
      incoming.on('end', () => {
        const reply = (value: object | string) => {
          const text = typeof value === 'string' ? value : JSON.stringify(value);
          const type = text.startsWith('event:') ? 'text/event-stream' : 'application/json';
          response.writeHead(200, { 'content-type': type });
          response.end(text);
        };
        if (incoming.url !== '/mcp') return reply(incoming.url === '/seed_session' ? seeded : { reward: 1 });
        const request = JSON.parse(body) as Rpc;
        heard.push({ ...request, headers: incoming.headers });
        const value = answer(request);
        const whole = typeof value === 'string' || 'jsonrpc' in value;
        reply(whole ? value : { jsonrpc: '2.0', id: request.id, result: value });
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { url, heard, stop: () => new Promise((resolve) => server.close(resolve)) };
  }
  interface Rpc {
    id: number;
    method: string;
    params: { name: string; arguments: object };
  }
  const task: Task = {
    id: 'row',
    payload: { responses_create_params: { input: 'Add.', tools: [{ type: 'function', name: 'add' }] } },
  };
  const listing = { tools: [tool] };

  /** The fault or the observations of an episode with these calls. */
  async function outcome(
    seeded: object,
    answer: (request: Rpc) => object | string,
    calls: string[] = [],
    options: Partial<NemoGymOptions> = { mcp: 'always' },
  ) {
    const { url, heard, stop } = await scripted(seeded, answer);
    const port = portOf(url, { tasks: 'row', ...options });
    try {
      const { sessionId } = await port.open(task);
      const observations = [];
      for (const text of calls) observations.push(await port.call(sessionId, 'add', text));
      await port.close(sessionId);
      return { observations, heard };
    } catch (error) {
      return { fault: (error as { code: string }).code, heard };
    } finally {
      await port.dispose();
      await stop();
    }
  }

  it('sends arguments as they stand, once, with the headers of the offer', async () => {
    const answer = ({ method }: Rpc) =>
      method === 'tools/list'
        ? listing
        : {
            content: [
              { type: 'text', text: '3' },
              { type: 'text', text: '4' },
            ],
          };
    const { observations, heard } = await outcome({ mcp: offer }, answer, ['{"b": 1.0, "a": 2}']);
    expect(observations).toEqual([{ content: '3\n4', error: false }]);
    expect(heard.map(({ method, id, headers }) => [method, id, headers['x-token']])).toEqual([
      ['tools/list', 1, 't'],
      ['tools/call', 2, 't'],
    ]);
    expect(heard[1]!.params).toEqual({ name: 'add', arguments: { b: 1, a: 2 } });
  });

  it('uses the routes where it may, the offer of newer servers too, and answers wrapped in an event', async () => {
    const event = ({ id, method }: Rpc) => {
      const value = method === 'tools/list' ? listing : { content: [{ type: 'text', text: 'ok' }], isError: true };
      return `event: message\r\ndata: ${JSON.stringify({ jsonrpc: '2.0', id, result: value })}\r\n\r\n`;
    };
    expect((await outcome({ resources_tools: offer }, event, ['{}'])).observations).toEqual([
      { content: 'ok', error: true },
    ]);
    expect((await outcome({ mcp: offer }, () => ({}), [], {})).heard).toEqual([]);
  });

  it.each<[string, object, (request: Rpc) => object | string, string]>([
    ['is not offered', {}, () => listing, 'service-protocol'],
    ['lies at another server', { mcp: { ...offer, url_path: '//evil/mcp' } }, () => listing, 'service-protocol'],
    ['needs another transport', { mcp: { ...offer, transport: 'stdio' } }, () => listing, 'service-protocol'],
    ['lacks a declared tool', { mcp: offer }, () => ({ tools: [] }), 'service-protocol'],
    ['lists a route as a tool', { mcp: offer }, () => ({ tools: [{ ...tool, name: 'verify' }] }), 'service-protocol'],
    [
      'answers another request',
      { mcp: offer },
      () => ({ jsonrpc: '2.0', id: 77, result: listing }),
      'service-protocol',
    ],
    ['answers no result of MCP', { mcp: offer }, () => ({ tools: 'none' }), 'service-protocol'],
    [
      'answers an error',
      { mcp: offer },
      ({ id }) => ({ jsonrpc: '2.0', id, error: { code: -32603 } }),
      'service-failed',
    ],
    [
      'lost the session',
      { mcp: offer },
      ({ method }) =>
        method === 'tools/list'
          ? listing
          : { content: [{ type: 'text', text: 'Invalid Gym MCP session token.' }], isError: true },
      'session-changed',
    ],
  ])('has a fault, not an observation, where it %s', async (_what, seeded, answer, code) => {
    expect(await outcome(seeded, answer, ['{}'])).toMatchObject({ fault: code });
  });
});
