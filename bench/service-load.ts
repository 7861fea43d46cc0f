// Many sessions of each reference service open at once: whole scripted episodes, without a model and without a device.
//   npx tsx bench/service-load.ts [--sessions 256] [--episodes 1024] [--warm 512] [--json]
// Client (with the environment's worker) and service (`shaderl serve-env`) are processes as in a run. Linux only.
// Not wall time of rollouts (service-overhead.ts): each player sends its next request at once, so that as many requests
// as sessions wait for two threads, and one takes about their number over the requests a second. Above 512 sessions
// `serve-env` has fewer spare places than there are players: some of them wait; at 1024 it has none (service-hold.ts).
// Invariant: exit code 1 where an episode failed or a session was left open.
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { SERVICE_PROTOCOLS, type ServiceProtocolName } from '../src/environments/service/choice.ts';
import { runChild } from './child.ts';
import { type HoldOrder, passes, type REQUESTS } from './service-hold.ts';
import { countOf } from './service-play.ts';

/** What `serve-env` serves at most. */
const MOST = 1024;

export interface LoadOrder extends HoldOrder {
  protocol: ServiceProtocolName;
}

interface Side {
  /** CPU milliseconds an episode. */
  cpuMs: number;
  peakMiB: number;
  openFiles: number;
}

export interface LoadFigures {
  protocol: ServiceProtocolName;
  episodesPerSecond: number;
  /** Sessions open at once, as service-hold.ts counts them. */
  least: number;
  most: number;
  /** Milliseconds. */
  requests: Record<(typeof REQUESTS)[number], { median: number; p95: number; longest: number; count: number }>;
  client: Side;
  service: Side;
  /** Sessions open at the end, as each side says; of the client with those whose end was not confirmed. */
  left: { client: number; service: number };
  failures: number;
  firstFailure: string | null;
}

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '256' },
    episodes: { type: 'string', default: '1024' },
    warm: { type: 'string', default: '512' },
    json: { type: 'boolean', default: false },
  },
});
const sessions = countOf('sessions', values.sessions, MOST);
const [episodes, warm] = [countOf('episodes', values.episodes), countOf('warm', values.warm)];
const order: HoldOrder = { sessions, spare: Math.min(sessions, MOST - sessions), warm, episodes };

const shown = (ms: number) => ms.toFixed(1).padStart(8);
function print(found: LoadFigures): void {
  const { protocol, episodesPerSecond, least, most, requests, client, service, left, failures, firstFailure } = found;
  console.log(
    `${protocol}: ${episodesPerSecond.toFixed(1)} episodes a second, ${least} to ${most} sessions open at once`,
  );
  for (const [kind, { median, p95, longest, count }] of Object.entries(requests)) {
    const times = `median ${shown(median)}, 95 % ${shown(p95)}, longest ${shown(longest)}`;
    console.log(`  ${kind.padEnd(7)} ${times} ms (${count})`);
  }
  for (const [name, { cpuMs, peakMiB, openFiles }] of Object.entries({ client, service })) {
    const memory = `${peakMiB.toFixed(0)} MiB at the peak`;
    console.log(`  ${name.padEnd(7)} ${cpuMs.toFixed(2)} CPU ms an episode, ${memory}, ${openFiles} open files`);
  }
  const first = firstFailure === null ? '' : `, the first: ${firstFailure}`;
  console.log(`  left open: client ${left.client}, service ${left.service}; failures: ${failures}${first}`);
}

if (!values.json) {
  const load = loadavg()[0]!.toFixed(1);
  console.log(`${episodes} episodes after ${warm}, ${sessions} sessions; ${cpus().length} cores, load ${load} before`);
}
const rows: LoadFigures[] = [];
const load = loadavg()[0]!;
for (const protocol of SERVICE_PROTOCOLS) {
  const found = await runChild<LoadFigures>(
    new URL('service-load-child.ts', import.meta.url),
    { ...order, protocol } satisfies LoadOrder,
    1_800_000,
  );
  rows.push(found);
  if (!values.json) print(found);
}
const passed = rows.every(passes);
if (values.json) console.log(JSON.stringify({ ...order, cores: cpus().length, load, rows, passed }));
process.exitCode = passed ? 0 : 1;
