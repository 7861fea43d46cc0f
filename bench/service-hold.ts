// Keeps so many sessions of an environment open while so many episodes are played, and times the requests.
// Not a service's start (service-load-child.ts). Invariant: between the first and the last episode that is counted, no
// fewer than `sessions` sessions are open (opened, and not yet on their way to the verdict), unless a failure took one
// away or there is no spare place: each of as many players opens its next session before it has the last one scored.
import { isDeepStrictEqual } from 'node:util';
import { createGermanEnvironment } from '../src/environments/german-environment.ts';
import type { EnvironmentPort } from '../src/environments/port.ts';
import { createAdmission } from '../src/environments/service/admission.ts';
import { play, playCalls, type Script } from './service-play.ts';

export interface HoldOrder {
  /** Sessions that are open all the time. */
  sessions: number;
  /** Sessions beyond those, for the next ones. 0: a session is closed before the next one, so that fewer are open. */
  spare: number;
  /** Episodes before the first that is counted. */
  warm: number;
  /** Episodes that are counted. */
  episodes: number;
}

export const REQUESTS = ['open', 'call', 'verify'] as const;

export interface Held<T> {
  /** Of the counted episodes, together. */
  seconds: number;
  /** Milliseconds of each request that began in that time. */
  ms: Record<(typeof REQUESTS)[number], number[]>;
  /** Sessions open at once in that time: least (as the invariant counts), and most (with those that open and end). */
  least: number;
  most: number;
  /** What went wrong, one text an episode, warm-up and end included. */
  failures: string[];
  /** Snapshots at the beginning and at the end of that time. */
  begin: T;
  end: T;
}

/** Whether nothing failed and nothing is left open. */
export const passes = (found: { failures: number; left: { client: number; service: number } }): boolean =>
  found.failures === 0 && found.left.client === 0 && found.left.service === 0;

/** Plays `scripts` over and over. An episode fails whose request fails, or whose verdict is not that in process. */
export async function holdSessions<T>(
  port: EnvironmentPort,
  scripts: readonly Script[],
  order: HoldOrder,
  snapshot: () => T,
): Promise<Held<T>> {
  const { sessions, spare, warm, episodes } = order;
  const local = createGermanEnvironment();
  const truths = await Promise.all(scripts.map((script) => play(local, script)));
  const places = createAdmission(spare);
  const ms: Held<T>['ms'] = { open: [], call: [], verify: [] };
  const failures: string[] = [];
  let [next, finished, open, taken, least, most] = [0, 0, 0, 0, Number.POSITIVE_INFINITY, 0];
  const marks: { at: number; seen: T }[] = [];
  const mark = () => marks.push({ at: performance.now(), seen: snapshot() });
  const counts = () => marks.length === 1;
  const over = () => marks.length === 2;

  async function timed<R>(kind: keyof typeof ms, request: () => Promise<R>): Promise<R> {
    const from = counts() ? performance.now() : null;
    const result = await request();
    if (from !== null) ms[kind].push(performance.now() - from);
    return result;
  }
  const timedPort: EnvironmentPort = {
    ...port,
    open: (task) => timed('open', () => port.open(task)),
    call: (...asked) => timed('call', () => port.call(...asked)),
    verify: (...asked) => timed('verify', () => port.verify(...asked)),
    close: (sessionId) => port.close(sessionId),
  };
  function change(by: 1 | -1): void {
    open += by;
    if (counts()) least = Math.min(least, open);
  }
  function finish(failure: unknown): void {
    if (failure !== null) failures.push(failure instanceof Error ? failure.message : String(failure));
    finished += 1;
    if (finished === warm) {
      [least, most] = [open, taken];
      mark();
    } else if (finished === warm + episodes) mark();
  }

  /** The next session, or null where it could not be opened. */
  async function start(): Promise<{ which: number; sessionId: string } | null> {
    const which = next++ % scripts.length;
    taken += 1;
    if (counts()) most = Math.max(most, taken);
    try {
      const { sessionId } = await timedPort.open(scripts[which]!.task);
      change(1);
      return { which, sessionId };
    } catch (error) {
      taken -= 1;
      finish(error);
      return null;
    }
  }

  let started = 0;
  let allStarted = () => {};
  const together = new Promise<void>((resolve) => {
    allStarted = resolve;
  });
  async function player(): Promise<void> {
    let session = await start();
    if (++started === sessions) allStarted();
    await together;
    while (session !== null || !over()) {
      session ??= await start();
      if (session === null) continue;
      const { which, sessionId } = session;
      const { expert } = scripts[which]!;
      session = null;
      let release = () => {};
      let failure: unknown = null;
      let counted = true;
      try {
        await playCalls(timedPort, sessionId, scripts[which]!);
        if (spare > 0) release = await places.acquire(600_000, 'waiting for a spare place');
        if (spare > 0 && !over()) session = await start();
        counted = false;
        change(-1);
        const verdict = await timedPort.verify(sessionId, expert.finalText, expert.invalidDispatches);
        if (!isDeepStrictEqual(verdict, truths[which]))
          throw new Error(`${sessionId}: another verdict than in process`);
      } catch (error) {
        failure = error;
      }
      if (counted) change(-1);
      await port.close(sessionId).catch((error: unknown) => {
        failure ??= error;
      });
      taken -= 1;
      release();
      finish(failure);
    }
  }
  await Promise.all(Array.from({ length: sessions }, player));
  const [begin, end] = [marks[0]!, marks[1]!];
  return { seconds: (end.at - begin.at) / 1000, ms, least, most, failures, begin: begin.seen, end: end.seen };
}
