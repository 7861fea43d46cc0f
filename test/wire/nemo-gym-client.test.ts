// Our NeMo Gym client against the recorded servers: it is fed their replies and must send and conclude what is right.
import { describe, expect, it } from 'vitest';
import { createNemoGymPort, readVerifyReply } from '../../src/environments/nemo-gym/client.ts';
import { cookieSessionId, createExchange, isGatewayFailure } from '../../src/environments/nemo-gym/exchange.ts';
import { DEFAULT_DEADLINES } from '../../src/environments/service/deadlines.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import type { HttpReply } from '../../src/environments/service/transport.ts';
import { EnvError } from '../../src/lib/errors.ts';
import { linesOf, startPlayer } from './support/player.ts';
import { header, type Line, readTranscript, scenarioNames } from './support/transcript.ts';

/** Scenarios that our client has no part in, and why. */
const NOT_FED: Readonly<Record<string, string>> = {
  'agent-routes': 'an agent server: shaderl is its own agent',
  'head-server': 'a head server: services are addressed by URL',
};

const deadlines = { ...DEFAULT_DEADLINES, replyMs: 3_000 };
const code = (error: unknown): string => (error instanceof EnvError ? error.code : `no EnvError: ${String(error)}`);

const asReply = (line: Line): HttpReply => ({
  status: line.status!,
  contentType: header(line, 'content-type') ?? '',
  setCookies: line.headers!.filter(([name]) => name === 'set-cookie').map(([, value]) => value),
  headers: {},
  text: line.body ?? '',
});

const cookieOf = (line: Line): string | null => header(line, 'set-cookie')?.split(';')[0] ?? null;

/** Connections of the resources server, whoever recorded them. */
function resourceConns(lines: readonly Line[]): string[] {
  const conns = lines.filter((line) => line.kind === 'http-request').map((line) => line.conn!);
  return [...new Set(conns)].filter((conn) => conn !== 'trainer' && !conn.startsWith('model') && conn !== 'openenv');
}

/** Feeds one connection's replies through a rollout's exchange: cookies, and the conclusion from each reply. */
async function feed(lines: readonly Line[], conn: string): Promise<number> {
  const own = linesOf(lines, conn);
  const player = await startPlayer(lines, [], conn);
  const exchange = createExchange(player.url, nodeHttp, deadlines);
  let newest: string | null = null;
  let session: string | null = null;
  let compared = 0;
  for (const [i, line] of own.entries()) {
    if (line.kind !== 'http-request') continue;
    // Methods that the client does not have do not occur in it.
    if (line.method !== 'GET' && line.method !== 'POST') continue;
    const recorded = own.slice(i).find((next) => next.kind === 'http-response')!;
    const outcome = await exchange.send('feeding', line.method, line.path!, line.body ?? null).catch(code);
    compared += 1;
    // The newest cookie of this rollout goes back, and a reply without one does not take it away.
    expect(player.heard.at(-1)!.cookie, `line ${line.t}`).toBe(newest);
    const cookie = cookieOf(recorded);
    const named = cookie === null ? null : cookieSessionId(cookie.slice(cookie.indexOf('=') + 1));
    if (session !== null && named !== null && named !== session) {
      // The recorder had lost or spoilt its cookie: another session behind the same name is a lost session.
      expect(outcome, `line ${line.t}`).toBe('session-changed');
      break;
    }
    if (typeof outcome === 'string') throw new Error(`line ${line.t}: ${outcome}`);
    expect({ status: outcome.status, text: outcome.text }).toEqual({ status: recorded.status, text: recorded.body });
    // No recorded reply of a server is a gateway's.
    expect(isGatewayFailure(outcome), `line ${line.t}`).toBe(false);
    newest = cookie ?? newest;
    session = named ?? session;
    expect(exchange.sessionId()).toBe(session);
  }
  await player.stop();
  return compared;
}

describe('the NeMo Gym client keeps the session and reads every reply of', () => {
  const names = scenarioNames('nemo-gym').filter((name) => !(name in NOT_FED));
  it.each(names)('%s', async (name) => {
    const { lines } = readTranscript('nemo-gym', name);
    let compared = 0;
    for (const conn of resourceConns(lines)) compared += await feed(lines, conn);
    expect(compared).toBeGreaterThan(0);
  });
  it('all scenarios are fed or named with their reason', () => {
    expect(names.length + Object.keys(NOT_FED).length).toBe(33);
  });
});

describe('a recorded verify reply', () => {
  const replies = scenarioNames('nemo-gym').flatMap((name) => {
    const { lines } = readTranscript('nemo-gym', name);
    return lines
      .filter((line) => line.kind === 'http-request' && line.path === '/verify')
      .map((line) => {
        const after = lines.slice(lines.indexOf(line));
        return [name, after.find((next) => next.kind === 'http-response' && next.conn === line.conn)!] as const;
      });
  });

  it('is a reward only where it is 200, finite and judged', () => {
    let scored = 0;
    for (const [name, line] of replies) {
      const at = `${name}:${line.t}`;
      const body = JSON.parse(line.body!);
      const usable = line.status === 200 && typeof body.reward === 'number' && body._ng_failure_class === undefined;
      let outcome: unknown;
      try {
        outcome = readVerifyReply('verifying', asReply(line)).reward;
      } catch (error) {
        outcome = code(error);
      }
      if (usable) expect(outcome, at).toBe(body.reward);
      else expect(outcome, at).toBe(line.status === 200 ? 'no-verdict' : 'service-failed');
      if (usable) scored += 1;
    }
    expect([scored, replies.length]).toEqual([25, 53]);
  });

  it('brings reward components as parts', () => {
    const { lines } = readTranscript('nemo-gym', 'verify-faults');
    expect(readVerifyReply('verifying', asReply(lines[1]!))).toMatchObject({ reward: 0.5, parts: { a: 1, b: 0 } });
  });
});

interface Item {
  type: string;
  name: string;
  arguments: string;
}

/** The calls that the recorded model made, in order. */
const modelCalls = (lines: readonly Line[]): Item[] =>
  lines
    .filter((line) => line.dir === '<' && line.conn?.startsWith('model'))
    .flatMap((line) => (JSON.parse(line.body!) as { output: Item[] }).output)
    .filter((item) => item.type === 'function_call');

/** Runs a whole recorded agent episode through our port; `alsoDeclared` are tools that the row did not name. */
async function runAgentEpisode(name: string, alsoDeclared: string[]) {
  const { lines } = readTranscript('nemo-gym', name);
  const row = JSON.parse(lines[0]!.body!);
  for (const tool of alsoDeclared) row.responses_create_params.tools.push({ type: 'function', name: tool });
  const player = await startPlayer(lines, [], 'resources-1');
  const port = createNemoGymPort({ url: player.url, maxSessions: 1, tasks: 'row', deadlines }, nodeHttp);
  const { sessionId, messages, tools } = await port.open({ id: name, payload: row });
  const observations: { content: string; error: boolean }[] = [];
  let lost: string | null = null;
  for (const call of modelCalls(lines)) {
    const outcome = await port.call(sessionId, call.name, call.arguments).catch(code);
    if (typeof outcome === 'string') lost ??= outcome;
    else observations.push(outcome);
  }
  const verdict = await port.verify(sessionId, 'done', 0).catch(code);
  await port.close(sessionId);
  await player.stop();
  return { lines, row, messages, tools, observations, verdict, lost, heard: player.heard };
}

describe('a whole rollout of the NeMo Gym client', () => {
  it('sends the row, the calls and one verify, as the recorded agent did (agent-episode)', async () => {
    const { lines, row, messages, tools, observations, verdict, heard } = await runAgentEpisode('agent-episode', []);
    const recorded = linesOf(lines, 'resources-1').filter((line) => line.dir === '>');
    expect(heard.map(({ path }) => path)).toEqual(recorded.map((line) => line.path));
    expect(JSON.parse(heard[0]!.text)).toEqual(row);
    for (const i of [1, 2, 3]) expect(JSON.parse(heard[i]!.text)).toEqual(JSON.parse(recorded[i]!.body!));
    const sent = JSON.parse(heard[4]!.text);
    const theirs = JSON.parse(recorded[4]!.body!);
    expect(sent.expected_count).toBe(theirs.expected_count);
    // The same calls and outputs; the recorded order within a turn and the token ids are the agent's own.
    const key = (item: Item & { output?: string }) => `${item.type} ${item.name ?? ''} ${item.output ?? ''}`;
    expect(sent.response.output.map(key).sort()).toEqual(theirs.response.output.map(key).sort());
    expect(messages).toEqual([{ role: 'user', content: 'add 1 then add 2 then get the count' }]);
    expect(tools.map((tool) => tool.function.name)).toEqual(['increment_counter', 'get_counter_value']);
    expect(observations.map(({ content }) => content)).toEqual(['{"success":true}', '{"success":true}', '{"count":6}']);
    expect(verdict).toMatchObject({ reward: 1, strict: true, toolErrors: 0 });
  });

  it('never dispatches undeclared names or arguments that are no object (agent-tool-errors)', async () => {
    const { heard, observations } = await runAgentEpisode('agent-tool-errors', []);
    const paths = heard.map(({ path }) => path);
    expect(paths).toEqual(['/seed_session', '/increment_counter', '/get_counter_value', '/verify']);
    expect(observations.map(({ error }) => error)).toEqual([true, true, true, true, true, true, true]);
    // The reply to the first call is the recorded 422, as text for the model.
    expect(observations[0]!.content).toContain('int_parsing');
  });

  it('keeps its cookie over a 500 that has none (agent-cookie-lost-after-500)', async () => {
    const tools = ['whoami', 'raise_value_error'];
    const { heard, lines, verdict, lost } = await runAgentEpisode('agent-cookie-lost-after-500', tools);
    const replies = linesOf(lines, 'resources-1').filter((line) => line.dir === '<');
    expect(replies[2]!.status).toBe(500);
    expect(heard[3]!.cookie).toBe(cookieOf(replies[1]!));
    // The recorded agent had lost its session by then; fed with those replies, ours notices.
    expect([lost, verdict]).toEqual(['session-changed', 'session-changed']);
  });

  it.each(['agent-verify-exception', 'agent-verify-judge-failed'])('has no verdict in %s', async (name) => {
    const { verdict, heard } = await runAgentEpisode(name, []);
    expect(verdict).toBe(name === 'agent-verify-exception' ? 'service-failed' : 'no-verdict');
    expect(heard.filter(({ path }) => path === '/verify')).toHaveLength(1);
  });

  it('does not start on a row that the server refuses (agent-run-bad-row)', async () => {
    const { lines } = readTranscript('nemo-gym', 'agent-run-bad-row');
    const player = await startPlayer(lines, [], 'resources-1');
    const port = createNemoGymPort({ url: player.url, maxSessions: 1, tasks: 'row', deadlines }, nodeHttp);
    const payload = JSON.parse(lines[0]!.body!);
    expect(await port.open({ id: 'bad', payload }).then(() => 'open', code)).toBe('service-failed');
    expect(player.heard).toHaveLength(1);
    await player.stop();
  });
});

describe('a Gymnasium rollout (gymnasium-style)', () => {
  const { lines } = readTranscript('nemo-gym', 'gymnasium-style');
  const row = JSON.parse(lines.find((line) => line.path === '/reset')!.body!);
  const says = (line: Line): string => JSON.parse(line.body!).response.output[0].content[0].text;
  row.responses_create_params.tools = [{ type: 'function', name: 'guess' }];

  it('sums rewards, sends one step for each move and stops when the server says so', async () => {
    const player = await startPlayer(lines, [], 'a');
    const options = { url: player.url, maxSessions: 1, tasks: 'row', style: 'gymnasium', deadlines } as const;
    const port = createNemoGymPort(options, nodeHttp);
    const { sessionId, messages } = await port.open({ id: 'guess', payload: row });
    expect(messages.at(-1)).toEqual({ role: 'user', content: 'guess a number' });
    expect(await port.call(sessionId, 'guess', '{"n":3}')).toEqual({ content: 'wrong', error: false });
    const verdict = await port.verify(sessionId, says(linesOf(lines, 'a')[4]!), 0);
    expect(verdict).toMatchObject({ strict: false, parts: { terminated: 1, truncated: 0 } });
    expect(Math.abs(verdict.reward - 0.9) <= 1e-12).toBe(true);
    expect(player.heard.map(({ path }) => path)).toEqual(['/reset', '/step', '/step']);
    await port.close(sessionId);
    await player.stop();
  });

  it('a step that answers 500 is no reward', async () => {
    const failing = [...lines.slice(0, 2), ...lines.filter((line) => line.status === 500)].map((l) => ({
      ...l,
      conn: 'x',
    }));
    const player = await startPlayer(failing, [], 'x');
    const options = { url: player.url, maxSessions: 1, tasks: 'row', style: 'gymnasium', deadlines } as const;
    const port = createNemoGymPort(options, nodeHttp);
    const { sessionId } = await port.open({ id: 'guess', payload: row });
    expect(await port.verify(sessionId, 'raise', 0).catch(code)).toBe('service-failed');
    await player.stop();
  });
});
