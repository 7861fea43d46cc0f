// What a service costs: wall time of the same rollouts in process and through both reference services.
//   npx tsx bench/service-overhead.ts [--episodes 96] [--warm 2] [--repeats 5] [--slots 32] [--family portable] [--json]
// Not a test of equality (test/protocol/adapter-bytes.test.ts), although it refuses to compare unequal rollouts.
// Invariant: the environments take turns, so that a slow moment of the machine meets all of them; the best time of each is
// compared, because other programs can only make one longer. CPU time of this process and of the service is told beside it
// (Linux alone): it is what a device of software takes away from the rollouts. Exit code 1 if a service costs more than 10 %.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type EnvironmentChoice, SERVICE_PROTOCOLS } from '../src/environments/service/choice.ts';
import { withoutTimings } from '../src/journal-events.ts';
import { canonicalJson } from '../src/lib/canonical-json.ts';
import { spawnEvaluator } from '../workers/evaluate-node.ts';
import type { EvaluateRequest } from '../workers/evaluation-api.ts';
import { withEnvironment } from '../workers/services/run-environment.ts';

const LIMIT = 1.1;
const embedded = fileURLToPath(new URL('../fixtures/embedded-policy', import.meta.url));

const { values } = parseArgs({
  options: {
    episodes: { type: 'string', default: '96' },
    warm: { type: 'string', default: '2' },
    repeats: { type: 'string', default: '5' },
    slots: { type: 'string', default: '32' },
    family: { type: 'string', default: 'portable' },
    model: { type: 'string', default: embedded },
    json: { type: 'boolean', default: false },
  },
});

function count(name: 'episodes' | 'warm' | 'repeats' | 'slots'): number {
  const value = Number(values[name]);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new Error(`reading --${name}: found ${values[name]}; wanted a count of at least 1. Correct it.`);
}

interface Environment {
  name: string;
  choice: EnvironmentChoice;
  seconds: number[];
  /** CPU seconds of both sides, a round each. */
  cpu: number[];
  /** Process of the service; null if there is none, or no /proc to ask. */
  pid: number | null;
}

/** CPU seconds of this process, and of the service. */
function cpuSeconds(pid: number | null): number {
  const { user, system } = process.cpuUsage();
  const own = (user + system) / 1e6;
  if (pid === null) return own;
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return own + (Number(fields[11]) + Number(fields[12])) / 100;
}

async function measure(environments: readonly Environment[]): Promise<{ tokens: number; calls: number }> {
  const request: Omit<EvaluateRequest, 'environment'> = {
    model: values.model,
    family: values.family === 'matrix' ? 'matrix' : 'portable',
    policy: { kind: 'base' },
    suite: { kind: 'agent', split: 'final', seed: 1729, episodes: count('episodes') },
    seeds: [42],
    sampling: { temperature: 1, topP: 1, topK: 0, minP: 0, maxTokens: 256, maxToolRounds: 3, thinking: true },
    slots: count('slots'),
  };
  const evaluator = await spawnEvaluator();
  let counts = { tokens: 0, calls: 0 };
  let first: string | null = null;
  try {
    // The first rounds warm up pipelines, clients and services, whose code is compiled as it runs, and show that all of
    // them make the same rollouts.
    for (let round = -count('warm'); round < count('repeats'); round++) {
      for (const { name, choice, seconds, cpu, pid } of environments) {
        const before = cpuSeconds(pid);
        const { evaluation, episodes } = await evaluator.evaluate({ ...request, environment: choice });
        if (round >= 0) {
          seconds.push(evaluation.wallSeconds);
          cpu.push(cpuSeconds(pid) - before);
          continue;
        }
        const made = canonicalJson(episodes.map(withoutTimings));
        first ??= made;
        if (made !== first)
          throw new Error(`comparing ${name}: found other rollouts than in process; wanted equal ones.`);
        const calls = episodes.flatMap(({ turns }) => turns.flatMap((turn) => turn.calls));
        counts = {
          tokens: evaluation.totals.sampledTokens,
          calls: calls.filter(({ dispatched }) => dispatched).length,
        };
      }
    }
  } finally {
    await evaluator.stop();
  }
  return counts;
}

const folder = mkdtempSync(join(tmpdir(), 'shaderl-overhead-'));
const environments: Environment[] = [
  { name: 'in process', choice: { kind: 'local' }, seconds: [], cpu: [], pid: null },
];

/** Starts the services one inside the other, so that each is ended whatever happens. */
async function withAll(
  rest: readonly (typeof SERVICE_PROTOCOLS)[number][],
): Promise<{ tokens: number; calls: number }> {
  const [env, ...others] = rest;
  if (env === undefined) return measure(environments);
  return withEnvironment(
    { env, url: null, sessions: count('slots'), folder: join(folder, env), name: env },
    (choice) => {
      const linux = process.platform === 'linux';
      const pid = linux
        ? (JSON.parse(readFileSync(join(folder, env, 'child.json'), 'utf8')) as { pid: number }).pid
        : null;
      environments.push({ name: env, choice, seconds: [], cpu: [], pid });
      return withAll(others);
    },
  );
}

try {
  const counts = await withAll(SERVICE_PROTOCOLS);
  const [local, ...services] = environments.map(({ name, seconds, cpu }) => ({
    name,
    best: Math.min(...seconds),
    seconds,
    cpu: Math.min(...cpu),
  }));
  const ratios = services.map((one) => ({
    ...one,
    ratio: one.best / local!.best,
    cpuRatio: one.cpu / local!.cpu,
  }));
  const passed = ratios.every(({ ratio }) => ratio <= LIMIT);
  if (values.json) console.log(JSON.stringify({ ...counts, local, services: ratios, limit: LIMIT, passed }));
  else {
    console.log(
      `${values.episodes} episodes, ${counts.tokens} sampled tokens, ${counts.calls} tool calls; best of ${values.repeats}`,
    );
    console.log(`in process  ${local!.best.toFixed(3)} s, CPU ${local!.cpu.toFixed(3)} s`);
    for (const { name, best, cpu, ratio, cpuRatio } of ratios) {
      const wall = `${best.toFixed(3)} s, ratio ${ratio.toFixed(3)} (limit ${LIMIT})`;
      console.log(`${name.padEnd(10)}  ${wall}; CPU ${cpu.toFixed(3)} s, ratio ${cpuRatio.toFixed(3)}`);
    }
  }
  process.exitCode = passed ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
