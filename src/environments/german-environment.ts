// The German lookup/calculator environment in process: sessions with their own server log, and the verdict.
// Not a protocol client. Invariant: a session's log is written here alone, one entry a call, and is frozen by `verify`;
// misuse of the port throws EnvError and never becomes a score.
import { EnvError } from '../lib/errors.ts';
import type { ServerLogEntry } from '../rollout/episode.ts';
import { germanTools } from './german-data.ts';
import { scoreSession } from './german-score.ts';
import { type GermanPayload, promptOf, readPayload } from './german-task.ts';
import { faultObservation, runTool } from './german-tools.ts';
import type { EnvironmentPort } from './port.ts';

/** Sessions that may be open at once; a caller that exceeds it forgets to close. */
export const MAX_OPEN_SESSIONS = 1024;
/** From this call on, the environment answers every call of a session with an error (a policy can cause this). */
export const MAX_CALLS = 64;
/** From this call on, the port refuses: no token budget of a rollout reaches it. */
export const MAX_LOG_ENTRIES = 1024;

interface Session {
  payload: GermanPayload;
  log: ServerLogEntry[];
  verified: boolean;
}

/**
 * An environment with no open sessions. Session ids are `<task id>#<n>`, n counting this task's openings since none was
 * open: a run that resumes in any epoch gets the ids that the uninterrupted one got. The same task may be open several times (the members of a group).
 */
export function createGermanEnvironment(): EnvironmentPort {
  const sessions = new Map<string, Session>();
  const openings = new Map<string, number>();

  const find = (doing: string, sessionId: string): Session => {
    const session = sessions.get(sessionId);
    if (session) return session;
    throw new EnvError(
      'unknown-session',
      `${doing}: no session "${sessionId}" is open; it was never opened or is closed already. ` +
        'Open a session and use its id until it is closed.',
    );
  };

  return {
    async open(task) {
      const payload = readPayload(task);
      if (sessions.size >= MAX_OPEN_SESSIONS) {
        throw new EnvError(
          'too-many-sessions',
          `opening task ${task.id}: ${sessions.size} sessions are open, at most ${MAX_OPEN_SESSIONS} may be. ` +
            'Close sessions when their episode ends.',
        );
      }
      const opening = (openings.get(task.id) ?? 0) + 1;
      openings.set(task.id, opening);
      const sessionId = `${task.id}#${opening}`;
      sessions.set(sessionId, { payload, log: [], verified: false });
      return { sessionId, messages: promptOf(payload), tools: germanTools() };
    },

    async call(sessionId, tool, argumentsJson) {
      const { payload, log, verified } = find(`calling ${tool}`, sessionId);
      if (verified || log.length >= MAX_LOG_ENTRIES) {
        throw new EnvError(
          verified ? 'session-verified' : 'session-exhausted',
          `calling ${tool} in session ${sessionId}: ` +
            (verified ? 'it was verified already' : `it has ${log.length} log entries, the most allowed`) +
            '; no further call may change its log. Open a new session.',
        );
      }
      const observation =
        log.length >= MAX_CALLS ? faultObservation('too-many-calls') : runTool(payload.table, tool, argumentsJson);
      log.push({
        index: log.length,
        tool,
        argumentsJson,
        observation: observation.content,
        error: observation.error,
      });
      return observation;
    },

    async verify(sessionId, finalText, invalidDispatches) {
      const session = find('verifying', sessionId);
      if (!(Number.isInteger(invalidDispatches) && invalidDispatches >= 0)) {
        throw new EnvError(
          'bad-count',
          `verifying session ${sessionId}: invalidDispatches is ${invalidDispatches}; ` +
            'it must be a count. Pass how many calls were not dispatched.',
        );
      }
      session.verified = true;
      return scoreSession(session.payload, copyLog(session.log), finalText, invalidDispatches);
    },

    async log(sessionId) {
      return copyLog(find('reading the log', sessionId).log);
    },

    async close(sessionId) {
      find('closing', sessionId);
      sessions.delete(sessionId);
      const taskId = sessionId.slice(0, sessionId.lastIndexOf('#'));
      const stillOpen = [...sessions.keys()].some((id) => id.startsWith(`${taskId}#`));
      if (!stillOpen) openings.delete(taskId);
    },
  };
}

/** The caller gets copies: the environment's own record cannot be changed from outside. */
function copyLog(log: readonly ServerLogEntry[]): ServerLogEntry[] {
  return log.map((entry) => ({ ...entry }));
}
