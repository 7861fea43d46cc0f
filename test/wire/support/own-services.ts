// Two small services of other people's tasks, by hand against the wire protocols: a stall that is asked for the weights
// of goods and paid by what was asked. Not the German task and none of our servers: plain node:http and ws.
// Invariant: everything that arrives is kept, so that a test can tell what the client sent.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';

export interface OwnService {
  url: string;
  /** Requests and messages, in order: `POST /seed_session {...}` or the text of a frame. */
  heard: string[];
  /** Sessions that were seeded or reset, and were neither verified nor closed. */
  open(): number;
  stop(): Promise<void>;
}

export const OWN_PROTOCOLS = ['nemo-gym', 'openenv'] as const;

/** Grams of a good, the answer key of a row. */
export type Stock = Record<string, number>;

const TOOLS = [
  {
    name: 'nachschlagen',
    description: 'Weighs a good.',
    parameters: { type: 'object', properties: { schluessel: { type: 'string' } }, required: ['schluessel'] },
  },
  {
    name: 'rechner',
    description: 'Counts the letters of a text.',
    parameters: { type: 'object', properties: { ausdruck: { type: 'string' } }, required: ['ausdruck'] },
  },
];

interface Session {
  stock: Stock;
  calls: { tool: string; ok: boolean }[];
  row: Record<string, unknown>;
}

function answer(session: Session, tool: string, args: Record<string, unknown>): { text: string; ok: boolean } {
  const key = String(args['schluessel'] ?? '');
  const ok = tool === 'rechner' ? typeof args['ausdruck'] === 'string' : key in session.stock;
  session.calls.push({ tool, ok });
  if (!ok) return { text: '{"problem":"no such good"}', ok };
  return {
    text: JSON.stringify(tool === 'rechner' ? { n: String(args['ausdruck']).length } : { g: session.stock[key] }),
    ok,
  };
}

/** A quarter for each call that was answered, at most 1; less a little for the others: it may be below 0. */
const rewardOf = ({ calls }: Session): number =>
  Math.min(1, calls.filter(({ ok }) => ok).length / 4) - calls.filter(({ ok }) => !ok).length / 8;

/** Dataset rows: the prompt is `prompt`; the stock is an answer key. Flags make verify withhold its reward. */
export function ownRow(prompt: string, stock: Stock, flags: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    responses_create_params: {
      input: [{ role: 'user', content: prompt }],
      tools: TOOLS.map((tool) => ({ type: 'function', ...tool, strict: false })),
    },
    stock,
    ...flags,
  };
}

async function listen(server: ReturnType<typeof createServer>, port: number): Promise<string> {
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const bodyOf = (request: IncomingMessage): Promise<string> =>
  new Promise((resolve) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => resolve(Buffer.concat(chunks).toString('utf8')));
  });

/**
 * A NeMo Gym resources server: seed_session, a route for each tool, verify. Sessions are told apart by a cookie.
 * `version` stands in its /openapi.json.
 */
export async function serveOwnGym(port = 0, version = '1'): Promise<OwnService> {
  const sessions = new Map<string, Session>();
  const heard: string[] = [];
  const open = new Set<string>();
  let next = 0;
  const masked = new Set<string>();

  function handle(
    path: string,
    id: string,
    body: Record<string, unknown>,
    reply: (status: number, text: string) => void,
  ) {
    if (path === '/seed_session') {
      sessions.set(id, { stock: body['stock'] as Stock, calls: [], row: body });
      open.add(id);
      return reply(200, '{}');
    }
    const session = sessions.get(id);
    if (!session) return reply(400, '{"detail":"seed first"}');
    if (path !== '/verify') {
      const { text, ok } = answer(session, path.slice(1), body);
      return reply(ok ? 200 : 404, text);
    }
    open.delete(id);
    const { mask, judge } = session.row;
    const said = { responses_create_params: body['responses_create_params'], response: body['response'] };
    // `mask` masks every rollout whose text is not among the first that a task gave.
    const output = JSON.stringify((body['response'] as { output: unknown }).output);
    if (mask === 'first' && (masked.size === 0 || masked.has(output))) {
      masked.add(output);
      return reply(200, JSON.stringify({ ...said, reward: 0, mask_sample: true }));
    }
    if (mask === 'all') return reply(200, JSON.stringify({ ...said, reward: 0, mask_sample: true }));
    if (judge === 'fails') {
      return reply(200, JSON.stringify({ ...said, reward: 0, _ng_failure_class: 'judge_failed' }));
    }
    reply(200, JSON.stringify({ ...said, reward: rewardOf(session) }));
  }

  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const text = await bodyOf(request);
    heard.push(`${request.method} ${request.url} ${text}`);
    const known = /(?:^|; )shop=([^;.]+)/.exec(request.headers.cookie ?? '')?.[1];
    const id = known ?? `s${next++}`;
    const reply = (status: number, body: string) =>
      response
        .writeHead(status, { 'content-type': 'application/json', 'set-cookie': `shop=${id}; path=/; httponly` })
        .end(body);
    if (request.method === 'GET') {
      if (request.url === '/openapi.json') return void reply(200, JSON.stringify({ info: { version } }));
      return void reply(request.url === '/' ? 200 : 404, '{"status":"ok"}');
    }
    handle(request.url!, id, JSON.parse(text), reply);
  });
  const url = await listen(server, port);
  return {
    url,
    heard,
    open: () => open.size,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const observation = (value: unknown, reward: number | null, done = false): string =>
  JSON.stringify({ type: 'observation', data: { observation: value, reward, done } });

/**
 * An OpenEnv environment of tools: reset, list_tools, call_tool with a reward for each step, state, close. `version`
 * stands in its /metadata.
 */
export async function serveOwnEnv(port = 0, version = '1'): Promise<OwnService> {
  const heard: string[] = [];
  let open = 0;
  const server = createServer((request, response) => {
    const reply = (status: number, body: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (request.url === '/health') return void reply(200, { status: 'healthy' });
    if (request.url === '/metadata') return void reply(200, { name: 'stall', description: 'A stall.', version });
    if (request.url === '/schema')
      return void reply(200, { action: { title: 'CallToolAction' }, observation: {}, state: {} });
    reply(404, { detail: 'Not Found' });
  });
  const sockets = new WebSocketServer({ server, path: '/ws' });

  function step(session: Session, data: Record<string, unknown>): string {
    if (data['type'] === 'list_tools') {
      const tools = TOOLS.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
      return observation({ tools }, null);
    }
    const tool = String(data['tool_name']);
    const { text, ok } = answer(session, tool, data['arguments'] as Record<string, unknown>);
    const result = { data: JSON.parse(text), is_error: !ok };
    return observation({ tool_name: tool, result, error: null }, rewardOf(session), session.calls.length >= 3);
  }

  sockets.on('connection', (socket: WebSocket) => {
    let session: Session | null = null;
    socket.on('close', () => {
      if (session) open -= 1;
    });
    socket.on('message', (frame: Buffer) => {
      const text = frame.toString('utf8');
      heard.push(text);
      const { type, data = {} } = JSON.parse(text) as { type: string; data?: Record<string, unknown> };
      if (type === 'close') return socket.close(1000);
      if (type === 'state') {
        const state = { episode_id: null, step_count: session?.calls.length ?? 0 };
        return socket.send(JSON.stringify({ type: 'state', data: state }));
      }
      if (type === 'reset') {
        if (!session) open += 1;
        session = { stock: data['stock'] as Stock, calls: [], row: data };
        return socket.send(observation({ prompt: String(data['question'] ?? '') }, null));
      }
      socket.send(step(session!, data));
    });
  });
  const url = await listen(server, port);
  return {
    url,
    heard,
    open: () => open,
    async stop() {
      for (const socket of sockets.clients) socket.terminate();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
