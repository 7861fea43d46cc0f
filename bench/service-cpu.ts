// What a service costs in CPU time: the same scripted episodes of the German task in process and through both reference
// services, without a model and without a device.
//   npx tsx bench/service-cpu.ts [--episodes 512] [--slots 32] [--warm 256] [--json]
// Not wall time (service-overhead.ts): other programs lengthen that and hardly change this. Invariant: both sides are
// counted, the client with its worker by this process and the service by /proc, so that it needs Linux.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { EnvironmentPort } from '../src/environments/port.ts';
import { SERVICE_PROTOCOLS } from '../src/environments/service/choice.ts';
import { spawnEnvironment } from '../workers/environment-node.ts';
import { countOf, cpuMs, play, scriptsOf, withServed } from './service-play.ts';

const { values } = parseArgs({
  options: {
    episodes: { type: 'string', default: '512' },
    slots: { type: 'string', default: '32' },
    warm: { type: 'string', default: '256' },
    json: { type: 'boolean', default: false },
  },
});
const [episodes, slots, warm] = [
  countOf('episodes', values.episodes),
  countOf('slots', values.slots),
  countOf('warm', values.warm),
];
const scripts = scriptsOf(Math.max(episodes, warm));

/** `slots` episodes at once, as a sampler with that many slots has them. */
async function round(port: EnvironmentPort, count: number): Promise<number> {
  let next = 0;
  let calls = 0;
  const slot = async () => {
    while (next < count) {
      const script = scripts[next++]!;
      await play(port, script);
      calls += script.expert.calls.length;
    }
  };
  await Promise.all(Array.from({ length: slots }, slot));
  return calls;
}

const folder = mkdtempSync(join(tmpdir(), 'shaderl-cpu-'));
const rows: { name: string; client: number; service: number; wall: number; calls: number }[] = [];
try {
  for (const env of ['local', ...SERVICE_PROTOCOLS] as const) {
    await withServed(env, slots, join(folder, env), async (choice, service) => {
      const { port, stop } = await spawnEnvironment(choice);
      await round(port, warm);
      const before = [cpuMs(process.pid), cpuMs(service), performance.now()] as const;
      const calls = await round(port, episodes);
      rows.push({
        name: env,
        client: (cpuMs(process.pid) - before[0]) / episodes,
        service: (cpuMs(service) - before[1]) / episodes,
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
