// Our OpenEnv server against the recorded one: it is fed the client's lines and must answer the same.
import { afterAll, describe, expect, it, vi } from 'vitest';
import { type ServiceHandle, serveOpenEnv } from '../../workers/services/openenv-server.ts';
import { lineClass, toolClass } from './support/line-env.ts';
import { openRaw, type RawConnection, type RawEvent } from './support/raw-connection.ts';
import { header, type Line, readTranscript, scenarioNames } from './support/transcript.ts';

/** Scenarios whose end says nothing of a server's answers: the last line that is replayed. */
const REPLAYED_UP_TO: Readonly<Record<string, number>> = {
  // The client's close frame overtook the reply to its last step, which therefore is not in the record.
  'client-timeout-shift': 14,
  // After the close frames of SIGTERM come ends of TCP in the order of the kernel, then those of a SIGKILL.
  'ws-server-shutdown': 14,
};

/** Scenarios with a server of their own; those that wait 40 s and 10 s have the same events after short times. */
const OWN: Readonly<Record<string, () => Promise<ServiceHandle>>> = {
  'ws-keepalive': () => serveOpenEnv({ environment: lineClass(), pingMs: 150 }),
  'ws-server-shutdown': () => serveOpenEnv({ environment: lineClass(), maxSessions: 4 }),
  'ws-close-no-echo': () => serveOpenEnv({ environment: lineClass(), closeMs: 80 }),
};

/** What stands for one of the recorded servers. Times are short; the order of events is what counts. */
const servers: Readonly<Record<string, () => Promise<ServiceHandle>>> = {
  line1: () => serveOpenEnv({ environment: lineClass() }),
  line4: () => serveOpenEnv({ environment: lineClass(), maxSessions: 4 }),
  idle: () => serveOpenEnv({ environment: lineClass(), sessionTimeoutMs: 200, reapEveryMs: 20 }),
  idletool: () => serveOpenEnv({ environment: toolClass(), sessionTimeoutMs: 200, reapEveryMs: 20 }),
  async1: () => serveOpenEnv({ environment: lineClass({ anyKwargs: true }) }),
  free: () => serveOpenEnv({ environment: lineClass({ free: true }) }),
  prod: () => serveOpenEnv({ environment: lineClass(), production: true }),
  broken: () => serveOpenEnv({ environment: lineClass({ broken: true }) }),
  tool1: () => serveOpenEnv({ environment: toolClass() }),
  tool4: () => serveOpenEnv({ environment: toolClass(), maxSessions: 4 }),
};

/** Headers that must be equal; `date`, `server`, lengths and the handshake's key are the library's. */
const COMPARED = ['content-type', 'allow', 'location', 'sec-websocket-extensions', 'sec-websocket-protocol'];

const comparable = (value: string | null, host: string): string | null =>
  value === null ? null : value.replaceAll(host, 'HOST');

/** The parts of a header value; their order says nothing. */
const parameters = (value: string | null): string[] | null => value?.split(/;\s*/).sort() ?? null;

/** Uuids of sessions differ in each run; the first one seen is called the same on both sides. */
function rename(text: string, names: Map<string, string>): string {
  let out = text;
  for (const [ours, theirs] of names) out = out.replaceAll(ours, theirs);
  return out;
}

function learnSession(expected: string | null | undefined, actual: string, names: Map<string, string>): void {
  const theirs = /"session_id": ?"([0-9a-f-]{36})"/.exec(expected ?? '')?.[1];
  const ours = /"session_id": ?"([0-9a-f-]{36})"/.exec(actual)?.[1];
  if (theirs && ours && !names.has(ours)) names.set(ours, theirs);
}

function payloadOf(line: Line, text: Buffer): Buffer {
  if (line.text?.includes('\ufffd') && line.conn === 'utf8') return Buffer.from([0xff, 0xfe]);
  if (line.truncated_from_bytes === undefined) return text;
  // Only the first 200 characters are kept; the rest were spaces.
  return Buffer.concat([text, Buffer.alloc(line.truncated_from_bytes - text.length, 0x20)]);
}

function send(connection: RawConnection, line: Line, names: Map<string, string>): void {
  const own = (text: string): string => {
    let out = text;
    for (const [ours, theirs] of names) out = out.replaceAll(theirs, ours);
    return out;
  };
  switch (line.kind) {
    case 'http-request':
      connection.request(line.method!, line.path!, line.headers!, line.body == null ? null : own(line.body));
      break;
    case 'ws-text':
      connection.frame(1, payloadOf(line, Buffer.from(own(line.text!), 'utf8')), {
        fin: line.fin !== false,
        masked: line.conn !== 'unmasked',
      });
      break;
    case 'ws-continuation':
      connection.frame(0, Buffer.from(line.text!, 'utf8'));
      break;
    case 'ws-binary':
      connection.frame(2, Buffer.from(line.base64!, 'base64'));
      break;
    case 'ws-ping':
      connection.frame(9, Buffer.alloc(line.bytes!, 0x61));
      break;
    case 'ws-close':
      connection.close(line.code ?? null);
      break;
    case 'tcp-reset':
    case 'tcp-end':
      connection.end(line.kind === 'tcp-reset');
      break;
    default:
      throw new Error(`the client's line ${line.t} is of unknown kind ${line.kind}`);
  }
}

function expectEqual(line: Line, event: RawEvent | null, host: string, names: Map<string, string>): void {
  const at = `line ${line.t}`;
  // A peer that violated the protocol is cut off; by a reset there, by an end here.
  const kind = line.kind === 'tcp-reset' ? 'tcp-end' : line.kind;
  expect(event?.kind, at).toBe(kind);
  if (event?.kind === 'http-response') {
    learnSession(line.body, event.body, names);
    expect({ at, status: event.status, body: rename(event.body, names) }).toEqual({
      at,
      status: line.status,
      body: line.body ?? '',
    });
    for (const name of COMPARED) {
      const ours = comparable(event.headers.find(([key]) => key === name)?.[1] ?? null, host);
      expect(parameters(ours), `${at}: ${name}`).toEqual(parameters(header(line, name)));
    }
  }
  if (event?.kind === 'ws-text') {
    learnSession(line.text, event.text, names);
    expect(rename(event.text, names), at).toBe(line.text);
  }
  // The reason of a library's own close frame is the library's text.
  if (event?.kind === 'ws-close') expect(event.code, at).toBe(line.code);
  if (event?.kind === 'ws-pong') expect(event.bytes, at).toBe(line.bytes);
}

async function replay(name: string): Promise<void> {
  const { server, lines } = readTranscript('openenv', name);
  const handle = await (OWN[name] ?? servers[server]!)();
  const host = new URL(handle.url).host;
  const connections = new Map<string, RawConnection>();
  const names = new Map<string, string>();
  const idle = server.startsWith('idle');
  let stopped: Promise<void> | null = null;
  try {
    for (const line of lines) {
      if (line.t > (REPLAYED_UP_TO[name] ?? Number.POSITIVE_INFINITY)) break;
      if (line.dir === '-') {
        if (line.text === 'SIGTERM sent') {
          // The step that is running has reached the environment.
          await new Promise((resolve) => setTimeout(resolve, 50));
          stopped = handle.stop();
        }
        // The recorder tried until the slot was free and kept the attempt that succeeded.
        if (line.text?.startsWith('first reset answered')) await vi.waitUntil(() => handle.openSessions() === 0, 5_000);
        if (line.kind === 'silence') {
          // Silence after a close frame is silence; before it, the reaper's time passes.
          const connection = connections.get(line.conn!)!;
          expect(await connection.next(idle ? 300 : 50), `line ${line.t}`).toBe(null);
        }
        continue;
      }
      if (line.dir === '<') {
        expectEqual(line, await connections.get(line.conn!)!.next(5_000), host, names);
        continue;
      }
      if (!connections.has(line.conn!)) connections.set(line.conn!, await openRaw(handle.url));
      if (idle && line.conn === 'state-only' && line.text?.includes('state')) {
        await new Promise((resolve) => setTimeout(resolve, 60));
      }
      send(connections.get(line.conn!)!, line, names);
    }
  } finally {
    for (const connection of connections.values()) connection.end(false);
    await (stopped ?? handle.stop());
  }
}

describe('the OpenEnv server answers as the recorded one in', () => {
  const names = scenarioNames('openenv');
  it.each(names)('%s', (name) => replay(name));
  it('all scenarios are replayed', () => {
    expect(names).toHaveLength(48);
  });
});

const handles: ServiceHandle[] = [];
afterAll(() => Promise.all(handles.map((handle) => handle.stop())));

async function handshake(handle: ServiceHandle): Promise<RawConnection> {
  const connection = await openRaw(handle.url);
  const upgrade: [string, string][] = [
    ['upgrade', 'websocket'],
    ['connection', 'Upgrade'],
    ['sec-websocket-key', 'dGhlIHNhbXBsZSBub25jZQ=='],
    ['sec-websocket-version', '13'],
  ];
  connection.request('GET', '/ws', upgrade, null);
  expect((await connection.next(5_000))?.kind).toBe('http-response');
  return connection;
}
const say = (connection: RawConnection, text: string): void => connection.frame(1, Buffer.from(text));

describe('the OpenEnv server', () => {
  it('closes a peer that answers no ping with 1011 and frees its slot', async () => {
    const handle = await serveOpenEnv({ environment: lineClass(), pingMs: 40 });
    handles.push(handle);
    const silent = await handshake(handle);
    say(silent, '{"type":"reset"}');
    expect((await silent.next(5_000))?.kind).toBe('ws-text');
    expect((await silent.next(5_000))?.kind).toBe('ws-ping');
    expect(await silent.next(5_000)).toEqual({ kind: 'ws-close', code: 1011, reason: 'keepalive ping timeout' });
    expect((await silent.next(5_000))?.kind).toBe('tcp-end');
    expect(handle.openSessions()).toBe(0);
  });

  it('ends TCP when a close frame is not answered, and the slot is free before', async () => {
    const handle = await serveOpenEnv({ environment: lineClass(), closeMs: 80 });
    handles.push(handle);
    const rude = await handshake(handle);
    say(rude, '{"type":"close"}');
    expect(await rude.next(5_000)).toEqual({ kind: 'ws-close', code: 1000, reason: '' });
    expect(handle.openSessions()).toBe(0);
    expect((await rude.next(5_000))?.kind).toBe('tcp-end');
  });

  it('shuts down with 1012 at once, also during a step', async () => {
    const handle = await serveOpenEnv({ environment: lineClass(), maxSessions: 4 });
    const [idle, busy] = [await handshake(handle), await handshake(handle)];
    for (const connection of [idle, busy]) {
      say(connection, '{"type":"reset"}');
      expect((await connection.next(5_000))?.kind).toBe('ws-text');
    }
    say(busy, '{"type":"step","data":{"op":"slow","text":"0.3"}}');
    await new Promise((resolve) => setTimeout(resolve, 50));
    const stopped = handle.stop();
    for (const connection of [idle, busy]) {
      expect(await connection.next(5_000)).toEqual({ kind: 'ws-close', code: 1012, reason: '' });
      connection.end(false);
    }
    await stopped;
    expect(handle.openSessions()).toBe(0);
  });
});
