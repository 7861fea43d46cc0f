// Our OpenEnv client against the recorded servers: it is fed the server's lines and must conclude what is right.
import { describe, expect, it } from 'vitest';
import { type Channel, openChannel } from '../../src/environments/openenv/channel.ts';
import { DEFAULT_DEADLINES } from '../../src/environments/service/deadlines.ts';
import { nodeSocket } from '../../src/environments/service/socket-node.ts';
import { EnvError } from '../../src/lib/errors.ts';
import { linesOf, startPlayer } from './support/player.ts';
import { type Line, readTranscript, scenarioNames } from './support/transcript.ts';

/** Scenarios without a line that our client could be fed, and why. */
const NOT_FED: Readonly<Record<string, string>> = {
  'http-factory-error': 'HTTP reset, step and state are stateless: our client never uses them',
  'http-info': 'HTTP alone; the client reads /schema, which test/unit/openenv.test.ts does with this record',
  'http-info-mcp-env': 'HTTP alone; the same',
  'http-reset': 'HTTP reset is stateless',
  'http-step': 'HTTP step is stateless',
  'http-step-mcp-env': 'HTTP step is stateless',
  'http-step-ok': 'HTTP step is stateless',
  'ws-protocol-errors': 'its client sends what ours cannot: invalid UTF-8, unmasked and cut frames',
  'ws-mcp-endpoint': 'direct MCP calls have no reward and no done: our client does not use WS /mcp',
  'ws-mcp-messages': 'the same for messages of type mcp',
  'ws-mcp-messages-plain-env': 'the same for messages of type mcp',
};

const deadlines = { ...DEFAULT_DEADLINES, replyMs: 3_000, closeMs: 100 };

/** What a reply means to a client, told from the record alone. */
function meaning(
  line: Line,
): { kind: 'data'; data: unknown } | { kind: 'refused'; code: string } | { kind: 'fault'; code: string } {
  if (line.kind !== 'ws-text') return { kind: 'fault', code: 'service-lost' };
  const { type, data } = JSON.parse(line.text!);
  if (type !== 'error') return { kind: 'data', data };
  if (data.code === 'VALIDATION_ERROR' || data.code === 'EXECUTION_ERROR') return { kind: 'refused', code: data.code };
  return { kind: 'fault', code: data.code === 'CAPACITY_REACHED' ? 'service-capacity' : 'service-failed' };
}

const asFault = (error: unknown): string => (error instanceof EnvError ? error.code : `no EnvError: ${String(error)}`);

/** Sends what the recorded client sent, one request at a time, and compares conclusions until the session is over. */
async function feed(channel: Channel, lines: Line[]): Promise<number> {
  let compared = 0;
  for (const [i, line] of lines.entries()) {
    if (line.dir !== '>' || line.kind !== 'ws-text' || /"close"\}$/.test(line.text!)) continue;
    // Messages of type mcp are not this client's.
    if (line.text!.includes('"type": "mcp"')) break;
    const reply = lines.slice(i + 1).find((next) => next.dir === '<');
    if (!reply) break;
    const expected = JSON.parse(reply.text ?? '{}').type === 'state' ? 'state' : 'observation';
    const outcome = await channel.request(`line ${line.t}`, line.text!, expected).catch(asFault);
    const wanted = meaning(reply);
    compared += 1;
    if (wanted.kind === 'fault') {
      expect(outcome, `line ${line.t}`).toBe(wanted.code);
      // Sticky: the reason stays the first one.
      expect(await channel.request('again', '{"type":"state"}', 'state').catch(asFault)).toBe(wanted.code);
      break;
    }
    if (typeof outcome === 'string') throw new Error(`line ${line.t}: ${outcome}`);
    if (wanted.kind === 'data') expect(outcome, `line ${line.t}`).toMatchObject({ ok: true, data: wanted.data });
    else expect(outcome, `line ${line.t}`).toMatchObject({ ok: false, code: wanted.code });
  }
  return compared;
}

/** A frame that the record's client got before it asked for anything. */
const greeting = (lines: Line[]): Line | null => (lines[2]?.dir === '<' ? lines[2] : null);

async function replay(name: string): Promise<void> {
  const { lines } = readTranscript('openenv', name);
  const conns = [
    ...new Set(lines.filter((line) => line.kind === 'http-request' && line.path === '/ws').map((l) => l.conn!)),
  ];
  const sockets = conns.filter((conn) => linesOf(lines, conn)[1]?.status === 101);
  let compared = 0;
  for (const conn of sockets) {
    const own = linesOf(lines, conn);
    const player = await startPlayer(lines, [conn]);
    const caps: number[] = [];
    const url = `${player.url.replace('http', 'ws')}/ws`;
    const channel = await openChannel('opening', url, nodeSocket, deadlines, (cap) => caps.push(cap));
    const first = greeting(own);
    if (first) {
      // The frame may come before or with the first request; either way it is the reason.
      const outcome = await channel.request('reset', '{"type":"reset","data":{}}', 'observation').catch(asFault);
      expect(outcome).toBe((meaning(first) as { code: string }).code);
      compared += 1;
    } else compared += await feed(channel, own);
    const named = own.find((line) => line.text?.includes('max_sessions'));
    expect(caps).toEqual(named ? [JSON.parse(named.text!).data.max_sessions] : []);
    await channel.finish();
    await player.stop();
  }
  // A record that compares nothing would prove nothing.
  if (!['ws-handshake', 'ws-no-greeting'].includes(name)) expect(compared).toBeGreaterThan(0);
}

describe('the OpenEnv client concludes what is right from', () => {
  const names = scenarioNames('openenv').filter((name) => !(name in NOT_FED));
  // Shifted replies have a test of their own; pipelining is what the client never does.
  const own = ['client-timeout-shift', 'ws-pipelined', 'ws-abrupt-during-step', 'http-mcp'];
  it.each(names.filter((name) => !own.includes(name)))('%s', (name) => replay(name));

  it('http-mcp: a full server refuses the socket with its cap', async () => {
    const { lines } = readTranscript('openenv', 'http-mcp');
    const player = await startPlayer(lines, ['w']);
    const url = `${player.url.replace('http', 'ws')}/ws`;
    const caps: number[] = [];
    const channel = await openChannel('opening', url, nodeSocket, deadlines, (cap) => caps.push(cap));
    expect(await channel.request('reset', '{"type":"reset"}', 'observation').catch(asFault)).toBe('service-capacity');
    expect(caps).toEqual([1]);
    await player.stop();
  });

  it('client-timeout-shift: a missed deadline destroys the socket, and no reply is taken for another', async () => {
    const { lines } = readTranscript('openenv', 'client-timeout-shift');
    // The late reply comes when the next request would be answered by it.
    const late = lines.filter((line) => line.kind !== 'client-result' && line.kind !== 'client-error');
    const step = late.findIndex((line) => line.dir === '<' && line.text?.includes('slow done'));
    const state = late.findIndex((line) => line.dir === '>' && line.text === '{"type": "state"}');
    const moved = [...late];
    const [reply] = moved.splice(step, 1);
    moved.splice(state, 0, reply!);
    const player = await startPlayer(moved, ['c1']);
    const url = `${player.url.replace('http', 'ws')}/ws`;
    const channel = await openChannel('opening', url, nodeSocket, { ...deadlines, replyMs: 100 }, () => {});
    expect(await channel.request('reset', '{"type":"reset"}', 'observation')).toMatchObject({ ok: true });
    const slow = channel.request('slow', '{"type":"step","data":{"op":"slow","text":"1.2"}}', 'observation');
    expect(await slow.catch(asFault)).toBe('service-timeout');
    expect(await channel.request('state', '{"type":"state"}', 'state').catch(asFault)).toBe('service-timeout');
    expect(player.heard).toHaveLength(2);
    await player.stop();
  });

  it('ws-pipelined: replies that nothing asked for end the session', async () => {
    const { lines } = readTranscript('openenv', 'ws-pipelined');
    const player = await startPlayer(
      // One request, and all the recorded replies to it at once.
      [...lines.slice(0, 3), ...lines.filter((line) => line.dir === '<' && line.kind === 'ws-text')],
      ['a'],
    );
    const url = `${player.url.replace('http', 'ws')}/ws`;
    const channel = await openChannel('opening', url, nodeSocket, deadlines, () => {});
    const first = await channel.request('reset', '{"type":"reset"}', 'observation').catch(asFault);
    expect(first).toMatchObject({ ok: true });
    expect(await channel.request('state', '{"type":"state"}', 'state').catch(asFault)).toBe('service-protocol');
    await player.stop();
  });

  it('ws-abrupt-during-step: a connection that ends before the reply is a lost session', async () => {
    const { lines } = readTranscript('openenv', 'ws-abrupt-during-step');
    const cut = lines.slice(0, 5);
    const end = { t: 6, dir: '<', kind: 'tcp-end', conn: 'a' } as const;
    const player = await startPlayer([...cut, end], ['a']);
    const url = `${player.url.replace('http', 'ws')}/ws`;
    const channel = await openChannel('opening', url, nodeSocket, deadlines, () => {});
    await channel.request('reset', '{"type":"reset"}', 'observation');
    expect(await channel.request('slow', cut[4]!.text!, 'observation').catch(asFault)).toBe('service-lost');
    await player.stop();
  });

  it('ws-handshake: a refused handshake is a failure of the service', async () => {
    const { lines } = readTranscript('openenv', 'ws-handshake');
    const player = await startPlayer(lines, ['unknown']);
    const url = `${player.url.replace('http', 'ws')}/nope`;
    const opened = openChannel('opening', url, nodeSocket, deadlines, () => {});
    expect(await opened.then(() => 'open', asFault)).toBe('service-failed');
    await player.stop();
  });

  it('all scenarios are fed or named with their reason', () => {
    expect(names.length + Object.keys(NOT_FED).length).toBe(48);
  });
});
