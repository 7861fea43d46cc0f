// What a service costs in CPU time: the same scripted episodes of the German task in process and through both reference
// services, without a model and without a device.
//   npx tsx bench/service-cpu.ts [--episodes 512] [--slots 32] [--warm 256] [--json]
// Not wall time (service-overhead.ts): other programs lengthen that and hardly change this. Invariant: both sides are
// counted, the client with its worker by this process and the service by /proc, so that it needs Linux.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { chooseImperfection, expertTranscript } from '../src/environments/german-expert.ts';
import { trainTasks } from '../src/environments/german-task.ts';
import type { EnvironmentPort } from '../src/environments/port.ts';
import { SERVICE_PROTOCOLS } from '../src/environments/service/choice.ts';
import { spawnEnvironment } from '../workers/environment-node.ts';
import { withEnvironment } from '../workers/services/run-environment.ts';

const { values } = parseArgs({
  options: {
    episodes: { type: 'string', default: '512' },
    slots: { type: 'string', default: '32' },
    warm: { type: 'string', default: '256' },
    json: { type: 'boolean', default: false },
  },
});
const [episodes, slots, warm] = [values.episodes, values.slots, values.warm].map(Number) as [number, number, number];

/** Milliseconds of CPU time of a process, all its threads together; ticks are 10 ms. */
function processMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

const ownMs = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

const tasks = trainTasks(20261020, Math.max(episodes, warm));
const experts = tasks.map((task, i) => expertTranscript(task, { imperfection: chooseImperfection(5, i) }));

async function play(port: EnvironmentPort, i: number): Promise<number> {
  const { sessionId } = await port.open(tasks[i]!);
  const { calls, finalText, invalidDispatches } = experts[i]!;
  for (const { tool, argumentsJson } of calls) await port.call(sessionId, tool, argumentsJson);
  await port.verify(sessionId, finalText, invalidDispatches);
  await port.close(sessionId);
  return calls.length;
}

/** `slots` episodes at once, as a sampler with that many slots has them. */
async function round(port: EnvironmentPort, count: number): Promise<number> {
  let next = 0;
  let calls = 0;
  const slot = async () => {
    while (next < count) {
      const own = await play(port, next++);
      calls += own;
    }
  };
  await Promise.all(Array.from({ length: slots }, slot));
  return calls;
}

const folder = mkdtempSync(join(tmpdir(), 'shaderl-cpu-'));
const rows: { name: string; client: number; service: number; wall: number; calls: number }[] = [];
try {
  for (const env of ['local', ...SERVICE_PROTOCOLS] as const) {
    const logs = join(folder, env);
    await withEnvironment({ env, url: null, sessions: slots, folder: logs, name: env }, async (choice) => {
      const { port, stop } = await spawnEnvironment(choice);
      const pid =
        env === 'local' ? null : (JSON.parse(readFileSync(join(logs, 'child.json'), 'utf8')) as { pid: number }).pid;
      const service = () => (pid === null ? 0 : processMs(pid));
      await round(port, warm);
      const before = [ownMs(), service(), performance.now()] as const;
      const calls = await round(port, episodes);
      rows.push({
        name: env,
        client: (ownMs() - before[0]) / episodes,
        service: (service() - before[1]) / episodes,
        wall: (performance.now() - before[2]) / episodes,
        calls,
      });
      await stop();
    });
  }
  if (values.json) console.log(JSON.stringify({ episodes, slots, rows }));
  else {
    console.log(`${episodes} episodes at ${slots} sessions, ${rows[0]!.calls} calls; ms an episode`);
    for (const { name, client, service, wall } of rows) {
      const figures = [client, service, wall].map((ms) => ms.toFixed(2).padStart(6)).join('  ');
      console.log(`${name.padEnd(10)}  client, service, wall  ${figures}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
