// What a service costs: wall time of the same rollouts in process and through both reference services.
//   npx tsx bench/service-overhead.ts [--episodes 96] [--warm 10] [--repeats 5] [--slots 32] [--family portable] [--json]
// Not a test of equality (test/protocol/adapter-bytes.test.ts), although it refuses to compare unequal rollouts.
// Invariant: the environments take turns, forwards and backwards, and a ratio is that of two times of one round: machines
// change their speed by more than a service costs, from one minute to the next. What is told is the median of the rounds'
// ratios with their quartiles. CPU time of this process and of the service is told beside it (Linux alone): it is what a
// device of software takes away from the rollouts. Exit code 1 if the median of a service is more than 10 %.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { quantileSorted } from 'simple-statistics';
import { type EnvironmentChoice, SERVICE_PROTOCOLS } from '../src/environments/service/choice.ts';
import { withoutTimings } from '../src/journal-events.ts';
import { canonicalJson } from '../src/lib/canonical-json.ts';
import { spawnEvaluator } from '../workers/evaluate-node.ts';
import type { EvaluateRequest } from '../workers/evaluation-api.ts';
import { countOf, cpuMs, withServed } from './service-play.ts';

const LIMIT = 1.1;
const embedded = fileURLToPath(new URL('../fixtures/embedded-policy', import.meta.url));

const { values } = parseArgs({
  options: {
    episodes: { type: 'string', default: '96' },
    warm: { type: 'string', default: '10' },
    repeats: { type: 'string', default: '5' },
    slots: { type: 'string', default: '32' },
    family: { type: 'string', default: 'portable' },
    model: { type: 'string', default: embedded },
    json: { type: 'boolean', default: false },
  },
});

const count = (name: 'episodes' | 'warm' | 'repeats' | 'slots'): number => countOf(name, values[name]);

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
const cpuSeconds = (pid: number | null): number => (cpuMs(process.pid) + cpuMs(pid)) / 1000;

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
      const order = round % 2 === 0 ? environments : [...environments].reverse();
      for (const { name, choice, seconds, cpu, pid } of order) {
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

interface Spread {
  low: number;
  median: number;
  high: number;
}

/** Median and quartiles. */
function spread(found: readonly number[]): Spread {
  const sorted = [...found].sort((a, b) => a - b);
  return { low: quantileSorted(sorted, 0.25), median: quantileSorted(sorted, 0.5), high: quantileSorted(sorted, 0.75) };
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
  return withServed(env, count('slots'), join(folder, env), (choice, pid) => {
    environments.push({ name: env, choice, seconds: [], cpu: [], pid });
    return withAll(others);
  });
}

try {
  const counts = await withAll(SERVICE_PROTOCOLS);
  const [local, ...services] = environments;
  const ratios = services.map(({ name, seconds, cpu }) => ({
    name,
    seconds,
    ratio: spread(seconds.map((time, round) => time / local!.seconds[round]!)),
    cpuRatio: spread(cpu.map((time, round) => time / local!.cpu[round]!)),
  }));
  const passed = ratios.every(({ ratio }) => ratio.median <= LIMIT);
  const here = { name: local!.name, seconds: local!.seconds, median: spread(local!.seconds).median };
  if (values.json) console.log(JSON.stringify({ ...counts, local: here, services: ratios, limit: LIMIT, passed }));
  else {
    console.log(
      `${values.episodes} episodes, ${counts.tokens} sampled tokens, ${counts.calls} tool calls; medians of ${values.repeats} rounds [quartiles]`,
    );
    console.log(`in process  ${here.median.toFixed(3)} s`);
    const shown = ({ low, median, high }: Spread) => `${median.toFixed(3)} [${low.toFixed(3)}, ${high.toFixed(3)}]`;
    for (const { name, ratio, cpuRatio } of ratios) {
      console.log(`${name.padEnd(10)}  ratio ${shown(ratio)} (limit ${LIMIT}); CPU ratio ${shown(cpuRatio)}`);
    }
  }
  process.exitCode = passed ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit();
