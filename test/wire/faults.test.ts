// What a network and a dying server can do, at every point of an episode: drop, delay, duplicate, truncate, garble,
// kill. The outcome is the true verdict or a named infrastructure failure, within the deadlines, and no session is
// left.
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Deadlines } from '../../src/environments/service/deadlines.ts';
import type { FaultCode } from '../../src/environments/service/faults.ts';
import type { Verdict } from '../../src/rollout/episode.ts';
import { PROTOCOLS, type Protocol, serveGerman } from '../../workers/services/german-service.ts';
import type { ServiceHandle } from '../../workers/services/openenv-server.ts';
import { FAULT_KINDS, type Fault, startFaultProxy } from './support/fault-proxy.ts';
import { germanPort, play, tasks, transcriptOf, trueVerdict } from './support/german.ts';

const TIME_TO_LIVE_MS = 1_500;
/** Episodes at once. */
const WIDTH = 12;

/**
 * Deadlines that an undisturbed episode keeps on this machine as loaded as it is now: a deadline that is missed before
 * the fault would prove nothing.
 */
async function fittingDeadlines(service: ServiceHandle, protocol: Protocol): Promise<Deadlines> {
  const begun = performance.now();
  const indices = Array.from({ length: WIDTH }, (_, index) => index);
  await inParallel(indices, WIDTH, async (index) => {
    const proxy = await startFaultProxy(service.url, null, 0);
    const task = tasks[index]!;
    expect(await play(germanPort(protocol, proxy.url), task, transcriptOf(task, index))).toBeTypeOf('object');
    await proxy.stop();
  });
  const ms = Math.min(3_000, Math.max(300, performance.now() - begun));
  return { connectMs: ms, sendMs: ms, replyMs: ms, closeMs: ms / 2, openMs: 2 * ms };
}
/** For a loaded machine, on top of the deadlines. */
const SLACK_MS = 5_000;

const INFRASTRUCTURE: ReadonlySet<string> = new Set<FaultCode>([
  'service-refused',
  'service-capacity',
  'service-lost',
  'service-timeout',
  'service-protocol',
  'service-failed',
  'session-changed',
  'no-verdict',
  'log-mismatch',
]);

interface Run {
  index: number;
  fault: Fault;
}

/** Chunks of each direction in a whole episode, at most; later points are not reached. */
const MAX_CHUNK = 9;

async function inParallel<T>(items: readonly T[], width: number, work: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length) await work(items[next++]!);
  };
  await Promise.all(Array.from({ length: width }, lane));
}

interface Tally {
  struck: number;
  verdicts: number;
  failures: Map<string, number>;
}

async function strike(
  service: ServiceHandle,
  protocol: Protocol,
  deadlines: Deadlines,
  run: Run,
  tally: Tally,
): Promise<void> {
  const task = tasks[run.index % tasks.length]!;
  const expert = transcriptOf(task, run.index);
  const proxy = await startFaultProxy(service.url, run.fault, deadlines.replyMs * 2);
  const port = germanPort(protocol, proxy.url, deadlines);
  const begun = performance.now();
  const outcome = await play(port, task, expert);
  const elapsed = performance.now() - begun;
  const name = `${protocol} ${JSON.stringify(run)}`;
  const waits = expert.calls.length + 5;
  const bound =
    deadlines.openMs + waits * (deadlines.connectMs + deadlines.sendMs + deadlines.replyMs) + deadlines.closeMs;
  expect(elapsed, name).toBeLessThan(bound + SLACK_MS);
  if (typeof outcome === 'string') {
    expect(INFRASTRUCTURE.has(outcome), `${name}: ${outcome}`).toBe(true);
    tally.failures.set(outcome, (tally.failures.get(outcome) ?? 0) + 1);
  } else {
    // Not a word of it is shifted, doubled or lost: the log and every observation in it are those in process.
    const truth: Verdict = await trueVerdict(task, expert);
    expect(outcome, name).toEqual(truth);
    tally.verdicts += 1;
  }
  expect(await port.stats(), name).toMatchObject({ open: 0 });
  if (proxy.struck()) tally.struck += 1;
  await proxy.stop();
}

describe.each(PROTOCOLS)('the %s client behind a faulty network', (protocol) => {
  let service: ServiceHandle;
  beforeAll(async () => {
    service = await serveGerman({ protocol, maxSessions: 512, version: '0.1.0', timeToLiveMs: TIME_TO_LIVE_MS });
  });
  afterAll(() => service.stop());

  const everyPoint: Run[] = FAULT_KINDS.flatMap((kind) =>
    (['up', 'down'] as const).flatMap((direction) =>
      Array.from({ length: MAX_CHUNK }, (_, chunk) => ({ index: 3 + chunk, fault: { kind, direction, chunk } })),
    ),
  );
  const drawn: Run[] = fc.sample(
    fc.record({
      index: fc.nat({ max: 5000 }),
      fault: fc.record({
        kind: fc.constantFrom(...FAULT_KINDS),
        direction: fc.constantFrom('up' as const, 'down' as const),
        chunk: fc.nat({ max: MAX_CHUNK - 1 }),
      }),
    }),
    { seed: 20261020, numRuns: 80 },
  );

  it.each([
    ['at every point of an episode', everyPoint],
    ['at points and in episodes drawn at random', drawn],
  ])('ends each episode in the true verdict or an infrastructure failure %s', async (_name, runs) => {
    const deadlines = await fittingDeadlines(service, protocol);
    const tally: Tally = { struck: 0, verdicts: 0, failures: new Map() };
    await inParallel(runs, WIDTH, (run) => strike(service, protocol, deadlines, run, tally));
    // The faults were really met, both outcomes occur, and neither is the rule by accident.
    expect(tally.struck).toBeGreaterThan(runs.length / 2);
    expect([...tally.failures.values()].reduce((a, b) => a + b, 0)).toBeGreaterThan(runs.length / 5);
    expect(tally.verdicts).toBeGreaterThan(0);
    await expect.poll(() => service.openSessions(), { timeout: TIME_TO_LIVE_MS + SLACK_MS }).toBe(0);
  });

  it('changes nothing when the proxy does nothing', async () => {
    const proxy = await startFaultProxy(service.url, null, 0);
    const port = germanPort(protocol, proxy.url);
    const expert = transcriptOf(tasks[0]!, 0);
    expect(await play(port, tasks[0]!, expert)).toEqual(await trueVerdict(tasks[0]!, expert));
    expect(proxy.chunks.up).toBeGreaterThan(3);
    await proxy.stop();
  });
});
