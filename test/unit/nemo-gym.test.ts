// The NeMo Gym client as an environment port: rows, cookies, verify exactly once, and what must never happen: a retry,
// another rollout's cookie, an answer key in a prompt, a zero for a failure of the service.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { trainTasks } from '../../src/environments/german-task.ts';
import { createNemoGymPort, type NemoGymOptions } from '../../src/environments/nemo-gym/client.ts';
import { createExchange } from '../../src/environments/nemo-gym/exchange.ts';
import { readRow } from '../../src/environments/nemo-gym/row.ts';
import type { Task } from '../../src/environments/port.ts';
import { DEFAULT_DEADLINES } from '../../src/environments/service/deadlines.ts';
import { germanRow } from '../../src/environments/service/german-tasks.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import type { ServicePort } from '../../src/environments/service/port.ts';
import { EnvError } from '../../src/lib/errors.ts';

const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

const code = (error: unknown): string => (error instanceof EnvError ? error.code : `no EnvError: ${String(error)}`);

interface Request {
  path: string;
  body: string;
  cookie: string | null;
}

/** An HTTP server by hand; `answer` gets each request and its number. */
async function scripted(answer: (request: Request, response: ServerResponse, index: number) => void) {
  const heard: Request[] = [];
  const server = createServer((incoming: IncomingMessage, response) => {
    const chunks: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
    incoming.on('end', () => {
      const body = Buffer.concat(chunks).toString('utf8');
      const request = { path: incoming.url!, body, cookie: incoming.headers.cookie ?? null };
      heard.push(request);
      answer(request, response, heard.length - 1);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, heard };
}

const json = (
  response: ServerResponse,
  status: number,
  body: string,
  headers: Record<string, string | string[]> = {},
): void => {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(body);
};

const row = {
  responses_create_params: {
    instructions: 'Be brief.',
    input: [
      { role: 'developer', content: [{ type: 'input_text', text: 'Use the tools.' }] },
      { role: 'user', content: 'Add one.' },
    ],
    tools: [
      {
        type: 'function',
        name: 'add',
        description: 'Adds.',
        parameters: { type: 'object', properties: {} },
        strict: true,
      },
    ],
  },
  ground_truth: 'the answer key is 42',
  verifier_metadata: { expected: 42 },
};
const task: Task = { id: 'row', payload: row };
const portOf = (url: string, options: Partial<NemoGymOptions> = {}): ServicePort => {
  const port = createNemoGymPort({ url, maxSessions: 8, tasks: 'row', ...options }, nodeHttp);
  stops.unshift(() => port.dispose());
  return port;
};

describe('a dataset row', () => {
  it('gives the prompt and the tools, and no other column reaches them', () => {
    const { messages, tools } = readRow('row', row);
    expect(messages).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'system', content: 'Use the tools.' },
      { role: 'user', content: 'Add one.' },
    ]);
    expect(tools).toEqual([
      {
        type: 'function',
        function: { name: 'add', description: 'Adds.', parameters: { type: 'object', properties: {} } },
      },
    ]);
    expect(JSON.stringify([messages, tools])).not.toContain('42');
  });

  it('of the German task keeps its table out of the prompt', () => {
    for (const german of trainTasks(3, 20)) {
      const built = germanRow(german);
      const values = Object.values((german.payload as { table: Record<string, number> }).table);
      const prompt = JSON.stringify(readRow(german.id, built).messages);
      for (const value of values) expect(prompt).not.toMatch(new RegExp(`\\b${value}\\b`));
    }
  });

  it.each(['verify', 'seed_session', 'aggregate_metrics', 'mcp', 'close_session'])(
    'may not declare %s as a tool',
    (name) => {
      const tools = [{ type: 'function', name }];
      const bad = { responses_create_params: { input: 'x', tools } };
      expect(() => readRow('row', bad)).toThrowError(`tool "${name}" is a route of the protocol`);
    },
  );

  it.each(['../verify', 'a/b', '..', ''])('may not declare %j as a tool', (name) => {
    expect(() =>
      readRow('row', { responses_create_params: { input: 'x', tools: [{ type: 'function', name }] } }),
    ).toThrow(EnvError);
  });
});

/** A server that answers everything well but verify. */
const withVerify = (verify: (response: ServerResponse) => void) => (request: Request, response: ServerResponse) => {
  if (request.path === '/verify') verify(response);
  else json(response, 200, request.path === '/seed_session' ? '{}' : '{"ok":true}');
};

describe('G1: an infrastructure failure is never a reward', () => {
  it.each<[string, (response: ServerResponse) => void, string]>([
    ['reward null', (r) => json(r, 200, '{"reward":null}'), 'no-verdict'],
    ['reply without a reward', (r) => json(r, 200, '{}'), 'no-verdict'],
    ['reward "0"', (r) => json(r, 200, '{"reward":"0"}'), 'no-verdict'],
    ['reward true', (r) => json(r, 200, '{"reward":true}'), 'no-verdict'],
    ['reward NaN', (r) => json(r, 200, '{"reward":NaN}'), 'service-protocol'],
    [
      'HTTP 502',
      (r) => r.writeHead(502, { 'content-type': 'text/html' }).end('<h1>Bad Gateway</h1>'),
      'service-failed',
    ],
    ['HTTP 500 of the verifier', (r) => json(r, 500, '"RuntimeError(\'judge\')"'), 'service-failed'],
    ['a failed judge', (r) => json(r, 200, '{"reward":0.0,"_ng_failure_class":"judge_failed"}'), 'no-verdict'],
    ['a masked sample', (r) => json(r, 200, '{"reward":0.0,"mask_sample":true}'), 'no-verdict'],
    ['a verifier that is silent', () => {}, 'service-timeout'],
    ['a connection that ends', (r) => r.destroy(), 'service-lost'],
    [
      'half a reply',
      (r) => r.writeHead(200, { 'content-length': '99' }).write('{"rew', () => r.destroy()),
      'service-lost',
    ],
  ])('%s', async (_name, verify, wanted) => {
    const { url, heard } = await scripted(withVerify(verify));
    const port = portOf(url, { deadlines: { replyMs: 200 } });
    const { sessionId } = await port.open(task);
    expect(await port.verify(sessionId, 'done', 0).catch(code)).toBe(wanted);
    // Sticky, and never asked twice: a second verify may score an empty session.
    await expect(port.verify(sessionId, 'done', 0)).rejects.toBeInstanceOf(EnvError);
    expect(heard.filter(({ path }) => path === '/verify')).toHaveLength(1);
  });

  it('a zero that the verifier gave is a verdict', async () => {
    const { url } = await scripted(withVerify((r) => json(r, 200, '{"reward":0.0,"reward_components":{"form":0.5}}')));
    const port = portOf(url);
    const { sessionId } = await port.open(task);
    expect(await port.verify(sessionId, 'done', 3)).toMatchObject({
      reward: 0,
      strict: false,
      invalidDispatches: 3,
      parts: { form: 0.5 },
    });
  });

  it('a connection that is refused, after the time for opening', async () => {
    const { url } = await scripted(withVerify(() => {}));
    await stops.pop()!();
    const port = portOf(url, { deadlines: { openMs: 200 } });
    expect(await port.open(task).catch(code)).toBe('service-refused');
  });
});

describe('a tool reply', () => {
  it('is text for the model at any status of the server, and a failure where a gateway answers', async () => {
    const replies: ((r: ServerResponse) => void)[] = [
      (r) => json(r, 200, '{"count":1}'),
      (r) => json(r, 422, '{"detail":[]}'),
      (r) => json(r, 500, '"ValueError(\'x\')"'),
      (r) => json(r, 503, '{"detail":"try later"}'),
      (r) => r.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' }).end('plain'),
      (r) => r.writeHead(504, { 'content-type': 'text/html' }).end('timeout'),
    ];
    const { url } = await scripted((request, response) => {
      if (request.path === '/seed_session') json(response, 200, '{}');
      else replies.shift()!(response);
    });
    const port = portOf(url);
    const { sessionId } = await port.open(task);
    const call = () => port.call(sessionId, 'add', '{}').catch(code);
    expect(await call()).toEqual({ content: '{"count":1}', error: false });
    expect(await call()).toEqual({ content: '{"detail":[]}', error: true });
    expect(await call()).toEqual({ content: '"ValueError(\'x\')"', error: true });
    expect(await call()).toEqual({ content: '{"detail":"try later"}', error: true });
    expect(await call()).toEqual({ content: 'plain', error: false });
    expect(await call()).toBe('service-failed');
    expect(await call()).toBe('service-failed');
  });
});

describe('G6: session cookies', () => {
  it('are kept for each rollout and server; the last value counts, also over a reply without one', async () => {
    const lastSent = new Map<string, string>();
    let rollouts = 0;
    const { url } = await scripted((request, response) => {
      if (request.path === '/seed_session') {
        const name = `rollout-${rollouts++}`;
        lastSent.set(name, `session=${name}.v1`);
        json(response, 200, '{}', { 'set-cookie': [`session=${name}.v1; path=/; httponly`] });
        return;
      }
      const name = /session=(rollout-\d+)/.exec(request.cookie ?? '')?.[1] ?? 'none';
      const newest = request.cookie === lastSent.get(name);
      if (request.path === '/verify') {
        json(response, 200, `{"reward":${newest ? 1 : 0}}`);
        return;
      }
      const step = JSON.parse(request.body).step as number;
      if (step === 2) {
        json(response, 500, '"RuntimeError()"');
        return;
      }
      lastSent.set(name, `session=${name}.v${step + 2}`);
      json(response, 200, JSON.stringify({ name, newest }), { 'set-cookie': [`${lastSent.get(name)}; path=/`] });
    });
    const port = portOf(url);
    const opened = await Promise.all(['a', 'b'].map((id) => port.open({ ...task, id })));
    const seen = [new Set<string>(), new Set<string>()];
    for (const step of [0, 1, 2]) {
      for (const [i, { sessionId }] of opened.entries()) {
        const { content } = await port.call(sessionId, 'add', JSON.stringify({ step }));
        if (step < 2) {
          const { name, newest } = JSON.parse(content);
          expect(newest).toBe(true);
          seen[i]!.add(name);
        }
      }
    }
    expect(seen.map((names) => names.size)).toEqual([1, 1]);
    expect([...seen[0]!][0]).not.toBe([...seen[1]!][0]);
    for (const { sessionId } of opened) expect((await port.verify(sessionId, 'done', 0)).reward).toBe(1);
  });

  it('of another server on this host with the same name are not sent', async () => {
    const serverNamed = (name: string) =>
      scripted((request, response) =>
        json(response, 200, JSON.stringify({ got: request.cookie, reward: 1 }), {
          'set-cookie': [`session=${name}; path=/`],
        }),
      );
    const [model, resources] = [await serverNamed('model'), await serverNamed('resources')];
    const [one, other] = [portOf(model.url), portOf(resources.url)];
    const opened = [await one.open(task), await other.open(task)] as const;
    expect(JSON.parse((await one.call(opened[0].sessionId, 'add', '{}')).content).got).toBe('session=model');
    expect(JSON.parse((await other.call(opened[1].sessionId, 'add', '{}')).content).got).toBe('session=resources');
  });
});

describe('cookies within one second', () => {
  it('follow each reply: a value that comes back, a path of its own, one that is taken away', async () => {
    const replies = [
      ['a=1; path=/'],
      ['a=2; path=/'],
      ['a=1; path=/'],
      ['a=1; path=/'],
      ['a=1; path=/', 'deep=x; path=/add/'],
      [],
      [],
      ['a=gone; path=/; Max-Age=0'],
      [],
    ];
    const { url, heard } = await scripted((_request, response, index) =>
      json(response, 200, '{}', { 'set-cookie': replies[index]! }),
    );
    const exchange = createExchange(url, nodeHttp, DEFAULT_DEADLINES);
    const paths = ['/a', '/a', '/a', '/a', '/a', '/add/one', '/b', '/add/one', '/add/one'];
    for (const path of paths) await exchange.send('a request', 'POST', path, '{}');
    expect(heard.map(({ cookie }) => cookie)).toEqual([
      null,
      'a=1',
      'a=2',
      'a=1',
      'a=1',
      'deep=x; a=1',
      'a=1',
      'deep=x; a=1',
      'deep=x',
    ]);
  });
});

describe('G8: a reply that comes after the deadline', () => {
  it('leaves one effect, one request and a failed session', async () => {
    let count = 0;
    const { url, heard } = await scripted((request, response) => {
      if (request.path !== '/add') {
        json(response, 200, '{}');
        return;
      }
      count += 1;
      setTimeout(() => json(response, 200, JSON.stringify({ count })), 250);
    });
    const port = portOf(url, { deadlines: { replyMs: 100 } });
    const { sessionId } = await port.open(task);
    expect(await port.call(sessionId, 'add', '{}').catch(code)).toBe('service-timeout');
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await port.call(sessionId, 'add', '{}').catch(code)).toBe('service-timeout');
    expect([count, (await port.log(sessionId)).length]).toEqual([1, 0]);
    expect(heard.map(({ path }) => path)).toEqual(['/seed_session', '/add']);
  });
});

describe('the end of a session', () => {
  it('before verify is told where the server named one, and 404 is no error but a leak', async () => {
    for (const [seeded, closing, leaked] of [
      ['{"resources_session_id":"s"}', 200, 0],
      ['{"resources_session_id":"s"}', 404, 1],
      ['{}', 200, 1],
    ] as const) {
      const { url, heard } = await scripted((request, response) =>
        json(response, request.path === '/close_session' ? closing : 200, seeded),
      );
      const port = portOf(url);
      const { sessionId } = await port.open(task);
      await port.close(sessionId);
      expect(await port.stats()).toMatchObject({ leaked, open: 0 });
      expect(heard.some(({ path }) => path === '/close_session')).toBe(seeded !== '{}');
    }
  });

  it('after verify sends nothing more', async () => {
    const { url, heard } = await scripted(withVerify((r) => json(r, 200, '{"reward":1}')));
    const port = portOf(url, { closeSession: true });
    const { sessionId } = await port.open(task);
    await port.verify(sessionId, 'done', 0);
    await port.close(sessionId);
    expect(heard.map(({ path }) => path)).toEqual(['/seed_session', '/verify']);
  });
});
