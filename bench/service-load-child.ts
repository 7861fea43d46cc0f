// One reference service under load in a process of its own, which is the client: its memory is that of this service's
// client alone. Not the loop (service-hold.ts). Invariant: what is left open is what the service itself says when it is
// told to end, before the client, whose end would close what it left.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { quantileSorted } from 'simple-statistics';
import type { EnvironmentPort } from '../src/environments/port.ts';
import type { ServicePort } from '../src/environments/service/port.ts';
import { spawnEnvironment } from '../workers/environment-node.ts';
import { answer, orderOf } from './child.ts';
import { holdSessions, REQUESTS } from './service-hold.ts';
import type { LoadFigures, LoadOrder } from './service-load.ts';
import { cpuMs, openFiles, peakMiB, scriptsOf, withServed } from './service-play.ts';

const order = orderOf<LoadOrder>();
const { protocol, sessions, spare, episodes } = order;
const logs = mkdtempSync(join(tmpdir(), 'shaderl-load-'));
let stopClient = async () => {};
let result: LoadFigures;

function quantiles(found: number[]): { median: number; p95: number; longest: number; count: number } {
  // None where every episode failed before it came to this request.
  if (found.length === 0) return { median: 0, p95: 0, longest: 0, count: 0 };
  const sorted = found.sort((a, b) => a - b);
  const [median, p95] = [quantileSorted(sorted, 0.5), quantileSorted(sorted, 0.95)];
  return { median, p95, longest: sorted.at(-1)!, count: sorted.length };
}

/** Sessions that the service still had when it was told to end. Throws Error where it ended by itself. */
function leftAtService(): number {
  const log = readFileSync(join(logs, `${protocol}.err.log`), 'utf8');
  const told = /SIGTERM: closing (\d+) sessions/.exec(log);
  if (told) return Number(told[1]);
  throw new Error(
    `ending the ${protocol} service: found no count of sessions in its log; wanted one. It ended: ${log}`,
  );
}

try {
  const figures = await withServed(protocol, sessions + spare, logs, async (choice, service) => {
    if (service === null) throw new Error('asking for processes: found no /proc; wanted one. Run this on Linux.');
    const spawned = await spawnEnvironment(choice);
    stopClient = spawned.stop;
    // The worker of a service has this too.
    const port = spawned.port as EnvironmentPort & Pick<ServicePort, 'stats'>;
    const pids = [process.pid, service] as const;
    const seen = () => pids.map((pid) => ({ cpu: cpuMs(pid), files: openFiles(pid) }));
    const { ms, begin, end, failures, seconds, least, most } = await holdSessions(port, scriptsOf(1024), order, seen);
    const { open, leaked } = await port.stats();
    const [client, server] = pids.map((pid, i) => ({
      cpuMs: (end[i]!.cpu - begin[i]!.cpu) / episodes,
      peakMiB: peakMiB(pid),
      openFiles: end[i]!.files,
    })) as [LoadFigures['client'], LoadFigures['service']];
    const requests = Object.fromEntries(REQUESTS.map((kind) => [kind, quantiles(ms[kind])])) as LoadFigures['requests'];
    const left = { client: open + leaked, service: 0 };
    const failed = { failures: failures.length, firstFailure: failures[0] ?? null };
    return {
      protocol,
      episodesPerSecond: episodes / seconds,
      least,
      most,
      requests,
      client,
      service: server,
      left,
      ...failed,
    };
  });
  result = { ...figures, left: { ...figures.left, service: leftAtService() } };
  await stopClient();
} finally {
  rmSync(logs, { recursive: true, force: true });
}
answer(result);
