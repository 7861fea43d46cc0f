// An EnvironmentPort over any service protocol: session ids, admission, sticky loss, and what is never dispatched.
// Not a protocol: those are openenv/ and nemo-gym/. Invariant: nothing is sent twice; the first fault of a session is
// the answer to everything that follows in it; a tool that the session did not declare never reaches the wire.
import { EnvError } from '../../lib/errors.ts';
import type { ServerLogEntry, Verdict } from '../../rollout/episode.ts';
import type { EnvironmentPort, Message, Observation, Task, ToolSpec } from '../port.ts';
import { createAdmission } from './admission.ts';
import { type Deadlines, sleep } from './deadlines.ts';
import { neverStarted } from './faults.ts';
import { createFingerprints } from './fingerprint.ts';
import { assembleVerdict, type ServiceVerdict } from './verdict.ts';

/** One session at the service. Its methods are called one at a time and reject with faults. */
export interface ServiceSession {
  messages: Message[];
  tools: ToolSpec[];
  /** The service's own name of the session, for the record. */
  serviceId(): string | null;
  call(tool: string, argumentsJson: string): Promise<Observation>;
  verify(finalText: string, invalidDispatches: number): Promise<ServiceVerdict>;
  /** Ends the session; whether the service is known to hold nothing of it. Never rejects, and is bounded in time. */
  end(verified: boolean): Promise<boolean>;
}

export interface ServiceProtocol {
  /** Whether the service keeps a session whose opening failed after the request was sent. */
  keepsUnknownSessions: boolean;
  /** Opens one session. Must leave no connection open when it rejects. */
  open(task: Task, sessionId: string, admission: { lower(cap: number): void }): Promise<ServiceSession>;
}

export interface ServiceStats {
  opened: number;
  verified: number;
  /** Sessions that ended in a fault. */
  lost: number;
  /** Sessions whose end the service did not confirm. */
  leaked: number;
  /** Sessions that are open now. */
  open: number;
  /** Places of the local admission. */
  limit: number;
}

export interface ServicePort extends EnvironmentPort {
  stats(): Promise<ServiceStats>;
  /** The service's own name of an open session. */
  serviceId(sessionId: string): Promise<string | null>;
  /** Ends all sessions. */
  dispose(): Promise<void>;
}

export interface ServicePortOptions {
  maxSessions: number;
  deadlines: Deadlines;
  strictReward: number;
}

interface Held {
  session: ServiceSession;
  declared: ReadonlySet<string>;
  log: ServerLogEntry[];
  lost: EnvError | null;
  busy: boolean;
  verified: boolean;
  release: () => void;
  ended: boolean;
}

/** The numbers of one task's sessions. */
interface TaskNumbers {
  next: number;
  /** Numbers of sessions that were lost, ascending. */
  free: number[];
  open: number;
}

/** Waits between attempts at a service that refuses or is full, in milliseconds; the last one repeats. */
const BACKOFF_MS = [10, 20, 50, 100, 200, 500];

function isObjectText(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

/**
 * Session ids are `<task id>#<n>`, n counting the task's openings since none of its sessions was open, as in process. A
 * session that was lost gives its number back: the rollout that is made again in its place has the id that it had.
 */
export function createServicePort(protocol: ServiceProtocol, options: ServicePortOptions): ServicePort {
  const { deadlines } = options;
  const admission = createAdmission(options.maxSessions);
  const fingerprints = createFingerprints();
  const sessions = new Map<string, Held>();
  const numbers = new Map<string, TaskNumbers>();
  /** The last opening waited in vain for a service that refuses: the next one does not wait all over again. */
  let absent = false;
  const counts = { opened: 0, verified: 0, lost: 0, leaked: 0 };

  function find(doing: string, sessionId: string): Held {
    const held = sessions.get(sessionId);
    if (held) return held;
    const found = `no session "${sessionId}" is open; it was never opened or is closed already`;
    throw new EnvError('unknown-session', `${doing}: ${found}. Open a session and use its id until it is closed.`);
  }

  async function end(held: Held): Promise<void> {
    if (held.ended) return;
    held.ended = true;
    if (!(await held.session.end(held.verified))) counts.leaked += 1;
    held.release();
  }

  /** Runs one exchange. The first fault ends the session and is its answer from then on. */
  async function exchange<T>(doing: string, held: Held, work: () => Promise<T>): Promise<T> {
    if (held.lost) throw held.lost;
    if (held.busy) {
      const rest = 'another request of this session is open; one at a time is allowed. Await it first.';
      throw new EnvError('session-busy', `${doing}: ${rest}`);
    }
    held.busy = true;
    try {
      return await work();
    } catch (error) {
      if (error instanceof EnvError) {
        held.lost = error;
        counts.lost += 1;
        await end(held);
      }
      throw error;
    } finally {
      held.busy = false;
    }
  }

  async function openPatiently(task: Task, sessionId: string): Promise<ServiceSession> {
    const giveUpAt = performance.now() + (absent ? 0 : deadlines.openMs);
    for (let attempt = 0; ; attempt++) {
      try {
        const session = await protocol.open(task, sessionId, admission);
        absent = false;
        return session;
      } catch (error) {
        const wait = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length - 1)]!;
        if (neverStarted(error) && performance.now() + wait <= giveUpAt) {
          await sleep(wait);
          continue;
        }
        absent = error instanceof EnvError && error.code === 'service-refused';
        throw error;
      }
    }
  }

  function takeNumber(taskId: string): number {
    const own = numbers.get(taskId) ?? { next: 1, free: [], open: 0 };
    numbers.set(taskId, own);
    own.open += 1;
    return own.free.shift() ?? own.next++;
  }

  /** `again`: nothing came of the session, so its number is used once more. */
  function returnNumber(sessionId: string, again: boolean): void {
    const at = sessionId.lastIndexOf('#');
    const own = numbers.get(sessionId.slice(0, at))!;
    own.open -= 1;
    if (again) own.free = [...own.free, Number(sessionId.slice(at + 1))].sort((a, b) => a - b);
    // A number that is to be used again keeps its task: the member that it belongs to is opened next.
    if (own.open === 0 && own.free.length === 0) numbers.delete(sessionId.slice(0, at));
  }

  return {
    async open(task) {
      const doing = `opening task ${task.id}`;
      const sessionId = `${task.id}#${takeNumber(task.id)}`;
      let release: () => void = () => {};
      let session: ServiceSession;
      try {
        release = await admission.acquire(deadlines.openMs, doing);
        session = await openPatiently(task, sessionId);
      } catch (error) {
        if (protocol.keepsUnknownSessions && !neverStarted(error)) counts.leaked += 1;
        release();
        returnNumber(sessionId, true);
        throw error;
      }
      const declared = new Set(session.tools.map((tool) => tool.function.name));
      const held: Held = {
        session,
        declared,
        log: [],
        lost: null,
        busy: false,
        verified: false,
        release,
        ended: false,
      };
      try {
        await fingerprints.check(doing, task.id, session.messages, session.tools);
      } catch (error) {
        await end(held);
        returnNumber(sessionId, true);
        throw error;
      }
      counts.opened += 1;
      sessions.set(sessionId, held);
      return { sessionId, messages: session.messages, tools: session.tools };
    },

    async call(sessionId, tool, argumentsJson) {
      const doing = `calling ${tool} in session ${sessionId}`;
      const held = find(doing, sessionId);
      if (held.verified) {
        const rest = 'it was verified already; no further call may change its log. Open a new session.';
        throw new EnvError('session-verified', `${doing}: ${rest}`);
      }
      if (held.lost) throw held.lost;
      // A policy can cause these two, so they are observations; the service never hears of them.
      if (!held.declared.has(tool)) return { content: JSON.stringify({ error: `unknown tool ${tool}` }), error: true };
      if (!isObjectText(argumentsJson)) return { content: '{"error":"arguments are no JSON object"}', error: true };
      const observation = await exchange(doing, held, () => held.session.call(tool, argumentsJson));
      const { content, error } = observation;
      held.log.push({ index: held.log.length, tool, argumentsJson, observation: content, error });
      return observation;
    },

    async verify(sessionId, finalText, invalidDispatches): Promise<Verdict> {
      const doing = `verifying session ${sessionId}`;
      const held = find(doing, sessionId);
      if (!(Number.isInteger(invalidDispatches) && invalidDispatches >= 0)) {
        const found = `invalidDispatches is ${invalidDispatches}; it must be a count`;
        throw new EnvError('bad-count', `${doing}: ${found}. Pass how many calls were not dispatched.`);
      }
      if (held.verified) {
        const rest = 'it was verified already; a service may score an empty session then. Keep the first verdict.';
        throw new EnvError('session-verified', `${doing}: ${rest}`);
      }
      return exchange(doing, held, async () => {
        held.verified = true;
        const service = await held.session.verify(finalText, invalidDispatches);
        const verdict = assembleVerdict(doing, service, held.log, invalidDispatches, options.strictReward);
        counts.verified += 1;
        return verdict;
      });
    },

    async log(sessionId) {
      return find('reading the log', sessionId).log.map((entry) => ({ ...entry }));
    },

    async close(sessionId) {
      const held = find('closing', sessionId);
      sessions.delete(sessionId);
      returnNumber(sessionId, held.lost !== null);
      await end(held);
    },

    async stats() {
      return { ...counts, open: sessions.size, limit: admission.limit() };
    },

    async serviceId(sessionId) {
      return find('naming', sessionId).session.serviceId();
    },

    async dispose() {
      const open = [...sessions.values()];
      sessions.clear();
      await Promise.all(open.map(end));
    },
  };
}
