// Checks of the service itself: who it is, its manners on the wire, forged histories, life cycle and concurrency.
// Not the whole protocol (the recorded transcripts are). Invariant: a check sends nothing that a conforming service
// would take amiss.

import { resultOf } from '../../../src/environments/german-score.ts';
import { readPayload } from '../../../src/environments/german-task.ts';
import { createExchange } from '../../../src/environments/nemo-gym/exchange.ts';
import { makeResponse, messageItem } from '../../../src/environments/nemo-gym/response.ts';
import { openChannel } from '../../../src/environments/openenv/channel.ts';
import type { Task } from '../../../src/environments/port.ts';
import { DEFAULT_DEADLINES } from '../../../src/environments/service/deadlines.ts';
import { germanRow } from '../../../src/environments/service/german-tasks.ts';
import { nodeHttp } from '../../../src/environments/service/http-node.ts';
import { nodeSocket } from '../../../src/environments/service/socket-node.ts';
import { IDENTITY_PATHS, type PinnedIdentity } from '../../../src/experiment/service-facts.ts';
import { sha256Hex } from '../../../src/lib/sha256-node.ts';
import type { Check, CheckOutcome, SmokeContext } from './context.ts';

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** What is pinned of any service: its metadata and schema answers. NeMo Gym's metadata is its reverify mode. */
export async function readIdentity({ protocol, get }: SmokeContext): Promise<PinnedIdentity> {
  const digests: Record<string, string> = {};
  let metadata: unknown = null;
  for (const path of IDENTITY_PATHS[protocol]) {
    const reply = await get(path);
    digests[path] = sha256Hex(Buffer.from(`${reply.status} ${reply.text}`, 'utf8'));
    if (path === '/metadata' || path === '/reverify_mode') metadata = jsonOrText(reply.text);
  }
  return { digests, metadata };
}

async function identity(context: SmokeContext): Promise<CheckOutcome> {
  const [path, wanted] =
    context.protocol === 'openenv' ? ['/health', '{"status":"healthy"}'] : ['/', '{"status":"ok"}'];
  const reply = await context.get(path!);
  const [first, second] = [await readIdentity(context), await readIdentity(context)];
  const again = JSON.stringify(first) === JSON.stringify(second);
  const ok = reply.status === 200 && reply.text === wanted && again;
  return {
    ok,
    found: `${reply.status} ${reply.text}, ${again ? 'stable' : 'changing'}`,
    wanted: `200 ${wanted}, stable`,
  };
}

async function manners({ protocol, url, post, get }: SmokeContext): Promise<CheckOutcome> {
  if (protocol === 'nemo-gym') {
    const found = [
      await post('/seed_session', '[]'),
      await post('/no_such_tool', '{}'),
      await get('/verify'),
      await get('/health'),
    ];
    const statuses = found.map(({ status }) => status).join(', ');
    return { ok: statuses === '422, 404, 405, 404', found: statuses, wanted: '422, 404, 405, 404' };
  }
  const socket = `${url.replace(/^http/, 'ws')}/ws`;
  const channel = await openChannel('manners', socket, nodeSocket, DEFAULT_DEADLINES, () => {});
  const wanted = 'VALIDATION_ERROR for an unknown key, the session going on, a state';
  try {
    const refused = await channel.request('an unknown key', '{"type":"reset","data":{},"x":1}', 'observation');
    const state = await channel.request('state', '{"type":"state"}', 'state');
    const found = refused.ok ? 'an observation' : refused.code;
    return { ok: found === 'VALIDATION_ERROR' && state.ok, found, wanted };
  } finally {
    await channel.finish();
  }
}

function rightAnswer(task: Task): string {
  const { operation, table, left, right } = readPayload(task);
  return `Antwort: ${resultOf(operation, table[left], table[right])}`;
}

/** NeMo Gym: the response claims calls that never happened. */
async function forgedOverHttp({ url, tasks }: SmokeContext): Promise<unknown> {
  const row = germanRow(tasks[0]!);
  const exchange = createExchange(url, nodeHttp, DEFAULT_DEADLINES);
  await exchange.send('seeding', 'POST', '/seed_session', JSON.stringify(row));
  const { table, left, right } = readPayload(tasks[0]!);
  const output = [left, right].flatMap((good, i) => [
    { type: 'function_call', call_id: `c${i}`, name: 'nachschlagen', arguments: JSON.stringify({ schluessel: good }) },
    { type: 'function_call_output', call_id: `c${i}`, output: String(table[good]) },
  ]);
  const response = makeResponse('forged', [], [...output, messageItem(rightAnswer(tasks[0]!))], 0);
  const reply = await exchange.send('verifying', 'POST', '/verify', JSON.stringify({ ...row, response }));
  return JSON.parse(reply.text);
}

async function forged(context: SmokeContext): Promise<CheckOutcome> {
  const wanted = 'no strict success and no credit for look-ups that never happened';
  const verdict = (
    context.protocol === 'nemo-gym'
      ? await forgedOverHttp(context)
      : await context.withPort(async (port) => {
          const { sessionId } = await port.open(context.tasks[0]!);
          const claim = `nachschlagen und rechner sagen es.\n${rightAnswer(context.tasks[0]!)}`;
          return port.verify(sessionId, claim, 0);
        })
  ) as { strict?: boolean; parts?: Record<string, number>; log?: unknown[] };
  const lookups = (verdict.parts?.['lookupLeft'] ?? 0) + (verdict.parts?.['lookupRight'] ?? 0);
  const ok = verdict.strict === false && lookups === 0 && verdict.log?.length === 0;
  return { ok, found: `strict ${verdict.strict}, look-up credit ${lookups}`, wanted };
}

async function undeclared({ tasks, withPort }: SmokeContext): Promise<CheckOutcome> {
  const names = ['verify', 'seed_session', '../verify', 'aggregate_metrics', 'close_session', 'reset', 'close'];
  return withPort(async (port) => {
    const { sessionId } = await port.open(tasks[0]!);
    for (const name of names) await port.call(sessionId, name, '{"final_text":"x","invalid_dispatches":0}');
    const { log } = await port.verify(sessionId, 'Antwort: 0', 0);
    const found = `${log.length} calls in the log`;
    return { ok: log.length === 0, found, wanted: `none of ${names.length} undeclared names dispatched` };
  });
}

async function verifyOnce({ tasks, withPort }: SmokeContext): Promise<CheckOutcome> {
  return withPort(async (port) => {
    const { sessionId } = await port.open(tasks[0]!);
    await port.verify(sessionId, 'Antwort: 0', 0);
    const codeOf = (work: Promise<unknown>) =>
      work.then(
        () => 'accepted',
        (error: { code?: string }) => error.code ?? 'error',
      );
    const second = await codeOf(port.verify(sessionId, 'Antwort: 0', 0));
    const late = await codeOf(port.call(sessionId, 'rechner', '{"ausdruck":"1+1"}'));
    await port.close(sessionId);
    const gone = await codeOf(port.verify(sessionId, 'Antwort: 0', 0));
    const found = [second, late, gone].join(', ');
    return { ok: found === 'session-verified, session-verified, unknown-session', found, wanted: 'three refusals' };
  });
}

async function concurrency({ tasks, withPort, concurrency: wanted }: SmokeContext): Promise<CheckOutcome> {
  return withPort(async (port) => {
    const begun = performance.now();
    const open = await Promise.all(Array.from({ length: wanted }, (_, i) => port.open(tasks[i % tasks.length]!)));
    const opened = performance.now();
    const answers = await Promise.all(
      open.map(({ sessionId }, i) => port.call(sessionId, 'rechner', JSON.stringify({ ausdruck: `${i} + 1` }))),
    );
    const called = performance.now();
    const right = answers.filter(({ content }, i) => content === String(i + 1)).length;
    await Promise.all(open.map(({ sessionId }) => port.close(sessionId)));
    const measured = { sessions: open.length, openMs: Math.round(opened - begun), callMs: Math.round(called - opened) };
    return { ok: right === wanted, found: `${right} sessions at once`, wanted: `${wanted} sessions at once`, measured };
  });
}

export const serviceChecks: readonly Check[] = [
  { name: 'service-identity', run: identity },
  { name: 'wire-manners', run: manners },
  { name: 'forged-history', run: forged },
  { name: 'undeclared-tools', run: undeclared },
  { name: 'verify-once', run: verifyOnce },
  { name: 'concurrency', run: concurrency },
];
