// The German lookup/calculator task as a NeMo Gym resources server.
// Not a copy of the task: it is the environment of src/ behind the protocol. Invariant: verify scores the session's own
// log and nothing that a request claims, and frees the session; what never reaches verify is freed after its time.
import { germanTools } from '../../src/environments/german-data.ts';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import { fromWire, toWire, type WireMap, type WireValue } from '../../src/environments/service/wire-json.ts';
import { EnvError } from '../../src/lib/errors.ts';
import type { Handler, ResourcesServer } from './nemo-gym-server.ts';
import { anything, dict, text } from './pydantic.ts';
import { HttpError } from './python-errors.ts';

export interface GermanNemoGymOptions {
  maxSessions: number;
  /** Idle time after which a session is freed; one hour by default. */
  timeToLiveMs?: number;
}

interface Session {
  port: EnvironmentPort;
  portSession: string;
  usedAt: number;
}

/** Names of closed sessions that are remembered, so that closing may come before seeding. */
const MAX_TOMBSTONES = 4096;

/** Text of the last assistant message of a response. */
function finalText(output: readonly WireValue[]): string {
  for (const item of [...output].reverse()) {
    if (!(item instanceof Map) || item.get('type') !== 'message' || item.get('role') !== 'assistant') continue;
    const content = item.get('content');
    if (typeof content === 'string') return content;
    if (!Array.isArray(content)) return '';
    return content.map((part) => (part instanceof Map ? String(part.get('text') ?? '') : '')).join('');
  }
  return '';
}

/** `metadata.invalid_dispatches` of a response, 0 where there is none. */
function invalidDispatches(response: WireMap): number {
  const metadata = response.get('metadata');
  const count = metadata instanceof Map ? metadata.get('invalid_dispatches') : undefined;
  return typeof count === 'string' && /^\d{1,9}$/.test(count) ? Number(count) : 0;
}

/** The server. Sessions are opened by seed_session with a row of `germanRow`. */
export function germanResourcesServer({
  maxSessions,
  timeToLiveMs = 3_600_000,
}: GermanNemoGymOptions): ResourcesServer {
  const sessions = new Map<string, Session>();
  const tombstones = new Set<string>();
  const sweep = setInterval(
    () => {
      for (const [id, { usedAt }] of sessions) if (performance.now() - usedAt >= timeToLiveMs) sessions.delete(id);
    },
    Math.max(20, Math.min(timeToLiveMs / 4, 60_000)),
  );
  sweep.unref();

  function live(sessionId: string): Session {
    const session = sessions.get(sessionId);
    if (!session) throw new HttpError(400, 'Session not initialized. Please call seed_session first.');
    session.usedAt = performance.now();
    return session;
  }

  const seed: Handler = {
    model: {
      title: 'GermanSeedSessionRequest',
      extra: 'ignore',
      fields: {
        task_id: { check: text() },
        verifier_metadata: { check: dict() },
        responses_create_params: { check: anything, fallback: () => null },
      },
    },
    async run(body, sessionId) {
      if (tombstones.has(sessionId)) throw new HttpError(409, 'The session was closed.');
      if (sessions.has(sessionId)) throw new HttpError(409, 'The session was seeded already.');
      if (sessions.size >= maxSessions) {
        const counts = `${sessions.size}/${maxSessions} sessions active`;
        throw new HttpError(503, `Server at capacity: ${counts}. Cannot accept new sessions.`);
      }
      const port = createGermanEnvironment();
      const task = { id: body.get('task_id') as string, payload: fromWire(body.get('verifier_metadata')!) as never };
      try {
        const { sessionId: portSession } = await port.open(task);
        sessions.set(sessionId, { port, portSession, usedAt: performance.now() });
      } catch (error) {
        if (error instanceof EnvError) throw new HttpError(400, error.message);
        throw error;
      }
      return { json: toWire({ resources_session_id: sessionId }) };
    },
  };

  const tool = (name: string): Handler => ({
    // The arguments are read by the task itself, from the text as it was sent.
    model: null,
    async run(_body, sessionId, request) {
      const { port, portSession } = live(sessionId);
      const { content, error } = await port.call(portSession, name, request.body);
      return { text: content, status: error ? 400 : 200 };
    },
  });

  const closeSession: Handler = {
    model: {
      title: 'CloseSessionRequest',
      extra: 'ignore',
      fields: { resources_session_id: { check: text() } },
    },
    run(body, sessionId) {
      const named = body.get('resources_session_id') as string;
      // A session is closed by its own cookie alone; closing again, or before seeding, is no error.
      if (named !== sessionId) throw new HttpError(403, 'The session of the cookie is another one.');
      sessions.delete(sessionId);
      if (tombstones.size >= MAX_TOMBSTONES) tombstones.delete(tombstones.values().next().value!);
      tombstones.add(sessionId);
      return { json: toWire({ resources_session_id: named }) };
    },
  };

  const tools: Record<string, Handler> = { close_session: closeSession };
  for (const { function: definition } of germanTools()) tools[definition.name] = tool(definition.name);
  return {
    className: 'GermanLookupResourcesServer',
    name: 'german_lookup',
    reverifyMode: 'unsupported',
    seed,
    tools,
    verify: {
      columns: {},
      async run(body, sessionId) {
        const { port, portSession } = live(sessionId);
        const response = body.get('response') as WireMap;
        const said = finalText(response.get('output') as WireValue[]);
        const verdict = await port.verify(portSession, said, invalidDispatches(response));
        sessions.delete(sessionId);
        const { reward, strict, parts, toolErrors, answer, log } = verdict;
        const extras = toWire({ strict, parts, tool_errors: toolErrors, answer, log }) as WireMap;
        return new Map<string, WireValue>([['reward', reward], ...extras]);
      },
    },
    openSessions: () => sessions.size,
    stop: () => clearInterval(sweep),
  };
}
