// Our NeMo Gym server against the recorded ones: it is fed the client's lines and must answer the same, with the same
// cookies, because it signs with the recorded server's key at the recorded time.
import { describe, expect, it } from 'vitest';
import { type ResourcesServer, serveNemoGym } from '../../workers/services/nemo-gym-server.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { counterServer, faultServer, guessServer, weatherServer, workplaceServer } from './support/gym-servers.ts';
import { openRaw, type RawConnection } from './support/raw-connection.ts';
import { header, type Line, readTranscript, scenarioNames } from './support/transcript.ts';

/** Scenarios of servers that shaderl does not have. */
const NOT_REPLAYED: Readonly<Record<string, string>> = {
  'agent-routes': 'an agent server: shaderl is its own agent and serves none',
  'head-server': 'a head server: shaderl has no process registry; services are addressed by URL',
};

/** Scenarios whose further lines are another server's: the last line that is replayed. */
const REPLAYED_UP_TO: Readonly<Record<string, number>> = {
  // Its second connection is to an OpenEnv server.
  'http-keep-alive': 3,
};
/** The recorded server closes an idle connection after 30 s. */
const QUICK_KEEP_ALIVE_MS = 50;

/** Lines that belong to one version of the openai package and are not followed. */
const OTHER_VERSION: Readonly<Record<string, string>> = {
  'verify-variants:93': 'openai 2.54 demands cache_write_tokens, 2.7.2 does not know it: our server takes both',
  'verify-upstream-rollout:5': 'the same: our server finds one missing field less',
};

const makers: readonly (() => ResourcesServer)[] = [
  counterServer,
  weatherServer,
  workplaceServer,
  faultServer,
  guessServer,
];

const COMPARED = ['content-type', 'allow', 'location', 'vary', 'set-cookie'];

function recordedCookie(line: Line): { name: string; sessionId: string; seconds: number } | null {
  const match = /^([^=]+)=([^.]+)\.([^.]+)\./.exec(header(line, 'set-cookie') ?? '');
  if (!match) return null;
  let seconds = 0;
  for (const byte of Buffer.from(match[3]!, 'base64url')) seconds = seconds * 256 + byte;
  return { name: match[1]!, sessionId: JSON.parse(Buffer.from(match[2]!, 'base64').toString()).session_id, seconds };
}

/** Of an agent's record only the resources server is ours. */
const isOurs = (line: Line): boolean => line.dir !== '-' && line.conn !== 'trainer' && !line.conn?.startsWith('model');

async function replay(name: string): Promise<void> {
  const { lines } = readTranscript('nemo-gym', name);
  const own = lines.filter((line) => isOurs(line) && line.t <= (REPLAYED_UP_TO[name] ?? Number.POSITIVE_INFINITY));
  const keepAlive = name === 'http-keep-alive' ? { keepAliveMs: QUICK_KEEP_ALIVE_MS } : {};
  const handles = new Map<string, ServiceHandle>();
  const connections = new Map<string, RawConnection>();
  let seconds = 0;
  let sessionId = '';
  const serverOf = async (conn: string): Promise<ServiceHandle> => {
    // Which server a connection goes to stands in its cookies.
    const cookieName = own
      .filter((line) => line.conn === conn)
      .map((line) => recordedCookie(line)?.name)
      .find((found) => found !== undefined);
    const server = makers
      .map((make) => make())
      .find(
        (candidate) =>
          `${candidate.className}___${candidate.name}` ===
          (cookieName ?? 'SimpleWeatherResourcesServer___example_single_tool_call'),
      )!;
    const known = handles.get(server.className);
    if (known) return known;
    const secret = `${server.className}___${server.name}`;
    const handle = await serveNemoGym({
      server,
      secret,
      now: () => seconds * 1000,
      newSessionId: () => sessionId,
      ...keepAlive,
    });
    handles.set(server.className, handle);
    return handle;
  };
  try {
    for (const [i, line] of own.entries()) {
      const handle = await serverOf(line.conn!);
      if (line.dir === '>') {
        const reply = own.slice(i).find((next) => next.dir === '<' && next.conn === line.conn)!;
        const cookie = recordedCookie(reply);
        if (cookie) ({ seconds, sessionId } = cookie);
        if (!connections.has(line.conn!)) connections.set(line.conn!, await openRaw(handle.url));
        connections.get(line.conn!)!.request(line.method!, line.path!, line.headers!, line.body ?? null);
        continue;
      }
      const event = await connections.get(line.conn!)!.next(5_000);
      const at = `line ${line.t}`;
      if (line.kind === 'tcp-end') {
        expect(event, at).toEqual({ kind: 'tcp-end' });
        continue;
      }
      if (event?.kind !== 'http-response') throw new Error(`${at}: got ${JSON.stringify(event)}`);
      if (`${name}:${line.t}` in OTHER_VERSION) continue;
      expect({ at, status: event.status, body: event.body }).toEqual({ at, status: line.status, body: line.body });
      const host = new URL(handle.url).host;
      for (const name of COMPARED) {
        const ours = event.headers.find(([key]) => key === name)?.[1]?.replaceAll(host, 'HOST') ?? null;
        expect(ours, `${at}: ${name}`).toBe(header(line, name));
      }
    }
  } finally {
    for (const connection of connections.values()) connection.end(false);
    await Promise.all([...handles.values()].map((handle) => handle.stop()));
  }
}

describe('the NeMo Gym server answers as the recorded ones in', () => {
  const names = scenarioNames('nemo-gym').filter((name) => !(name in NOT_REPLAYED));
  it.each(names)('%s', (name) => replay(name));
  it('all scenarios are replayed or named with their reason', () => {
    expect(scenarioNames('nemo-gym')).toHaveLength(33);
    expect(names.length + Object.keys(NOT_REPLAYED).length).toBe(33);
  });
});

describe('the NeMo Gym server', () => {
  it('closes an idle connection after its keep-alive time', async () => {
    const handle = await serveNemoGym({ server: weatherServer(), keepAliveMs: 50 });
    const connection = await openRaw(handle.url);
    connection.request('GET', '/', [], null);
    expect((await connection.next(5_000))?.kind).toBe('http-response');
    expect(await connection.next(5_000)).toEqual({ kind: 'tcp-end' });
    await handle.stop();
  });

  it('does not take a cookie that another process signed', async () => {
    const [one, other] = await Promise.all([0, 1].map(() => serveNemoGym({ server: counterServer() })));
    const seeded = await fetch(`${one!.url}/seed_session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"initial_count":3}',
    });
    const cookie = seeded.headers.getSetCookie()[0]!.split(';')[0]!;
    const read = (url: string) =>
      fetch(`${url}/get_counter_value`, { method: 'POST', headers: { cookie } }).then((r) => r.text());
    expect([await read(one!.url), await read(other!.url)]).toEqual(['{"count":3}', '{"count":0}']);
    await Promise.all([one!.stop(), other!.stop()]);
  });
});
