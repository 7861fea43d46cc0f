// The main job on the embedded policy: evaluate, train, evaluate the sealed adapter, compare, report.
// Not a demonstration with numbers of its own: it calls what train, evaluate and report call.
// Invariant: the policy that is evaluated afterwards is opened by the seal of the last checkpoint.
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { EnvironmentChoice } from '../src/environments/service/choice.ts';
import { compareEvaluations } from '../src/evaluation/compare.ts';
import { writeEvaluation } from '../src/evaluation/files-node.ts';
import type { KernelFamily } from '../src/gpu/device.ts';
import { type Journal, openJournal, readJournal } from '../src/journal.ts';
import { CheckpointError } from '../src/lib/errors.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import { createNodeStorage } from '../src/lib/storage-node.ts';
import { type ResolvedRunConfig, type RunConfig, resolveRunConfig } from '../src/run-config.ts';
import { type SpawnedEvaluator, spawnEvaluator } from './evaluate-node.ts';
import type { EvaluateAnswer, EvaluatedPolicy } from './evaluation-api.ts';
import { reportRun } from './report-node.ts';
import { type AskedEnvironment, withEnvironment } from './services/run-environment.ts';
import { type TrainProgress, trainRun } from './train-node.ts';

export interface QuickstartProgress extends TrainProgress {
  onEvaluation?: (name: 'before' | 'after', finished: number, total: number) => void;
}

export interface QuickstartOptions {
  output: string;
  steps?: number;
  seed?: number;
  family?: KernelFamily;
  /** What serves the task; no byte of the result depends on it. The OpenEnv reference service by default. */
  env?: AskedEnvironment['env'];
  progress?: QuickstartProgress;
  shouldStop?: () => boolean;
}

export interface QuickstartSummary {
  seconds: number;
  device: string;
  software: boolean;
  steps: number;
  before: { strict: number; n: number };
  after: { strict: number; n: number };
  paired: { difference: number; low: number | null; high: number | null };
  audit: { rollouts: number; findings: number };
  adapterSha256: string;
}

/** Sequences of an evaluation that are generated side by side. */
const slots = 32;
const recipe = new URL('../recipes/quickstart.json', import.meta.url);
const embedded = new URL('../fixtures/embedded-policy', import.meta.url).pathname;

/** The quickstart's configuration: recipes/quickstart.json with the embedded policy, an output and a few overrides. */
export async function quickstartConfig(options: QuickstartOptions): Promise<ResolvedRunConfig> {
  const json = JSON.parse(readFileSync(recipe, 'utf8')) as Record<string, unknown>;
  const overrides = {
    model: embedded,
    output: options.output,
    ...(options.steps === undefined ? {} : { steps: options.steps }),
    ...(options.seed === undefined ? {} : { seed: options.seed }),
    ...(options.family === undefined ? {} : { kernels: { family: options.family } }),
  };
  return resolveRunConfig(JSON.stringify({ ...json, ...overrides }), 'recipes/quickstart.json');
}

/** A finished or foreign run in the folder is moved aside, never overwritten; an unfinished one is resumed. */
async function prepareFolder(run: ResolvedRunConfig, note: (text: string) => void): Promise<boolean> {
  const { output } = run.config;
  if (!existsSync(join(output, 'journal.jsonl'))) return false;
  const { entries } = await readJournal(createNodeStorage(output), 'journal.jsonl');
  const start = entries.find((entry) => entry.kind === 'run-start');
  const same = start?.kind === 'run-start' && start.data.planSha256 === run.sha256;
  if (same && !existsSync(join(output, 'summary.json'))) {
    note(`resuming the unfinished run in ${output}`);
    return true;
  }
  let n = 1;
  while (existsSync(`${output}.${n}`)) n += 1;
  renameSync(output, `${output}.${n}`);
  note(`the earlier run is now in ${output}.${n}`);
  return false;
}

async function evaluation(
  name: 'before' | 'after',
  step: number,
  policy: EvaluatedPolicy,
  run: RunConfig,
  environment: EnvironmentChoice,
  evaluator: SpawnedEvaluator,
  journal: Journal,
  progress: QuickstartProgress,
): Promise<EvaluateAnswer> {
  const { generation, data } = run;
  const sampling = {
    temperature: generation.temperature,
    topP: generation.topP,
    topK: generation.topK,
    minP: generation.minP,
    maxTokens: generation.maxCompletionTokens,
    maxToolRounds: generation.maxToolRounds,
    thinking: generation.enableThinking,
  };
  const request = {
    model: run.model,
    family: run.kernels.family,
    policy,
    suite: {
      kind: 'agent' as const,
      split: 'final' as const,
      seed: data.seeds.final,
      episodes: run.evaluation.episodes,
    },
    seeds: [...run.evaluation.seeds],
    sampling,
    slots,
    environment,
  };
  const answer = await evaluator.evaluate(request, (finished, total) => progress.onEvaluation?.(name, finished, total));
  const file = `evaluations/${name}.json`;
  writeEvaluation(join(run.output, file), answer.evaluation);
  writeFileSync(
    join(run.output, `evaluations/${name}.rollouts.jsonl`),
    answer.episodes.map((e) => `${JSON.stringify(e)}\n`).join(''),
  );
  const { totals, adapterSha256, wallSeconds } = answer.evaluation;
  await journal.append({
    kind: 'evaluation',
    data: {
      step,
      name,
      suite: 'agent',
      policy: adapterSha256 ?? 'base',
      items: totals.items,
      metrics: { strict: totals.correct / totals.samples, samples: totals.samples },
      result: { file, sha256: sha256Hex(readFileSync(join(run.output, file))) },
      seconds: wallSeconds,
    },
  });
  return answer;
}

/** Runs the whole job and writes report.html, report.json and summary.json; null if it was asked to stop. */
export async function quickstart(options: QuickstartOptions): Promise<QuickstartSummary | null> {
  const began = performance.now();
  const { progress = {} } = options;
  const run = await quickstartConfig(options);
  const resume = await prepareFolder(run, (text) => progress.onNote?.(text));
  const { groupSize, groupsPerStep } = run.config.grpo;
  const asked = {
    env: options.env ?? 'openenv',
    url: null,
    sessions: Math.max(slots, groupSize * groupsPerStep),
    folder: join(run.config.output, 'service'),
    name: 'quickstart',
  };
  return withEnvironment(asked, (environment) => job(options, run, resume, environment, began));
}

async function job(
  options: QuickstartOptions,
  run: ResolvedRunConfig,
  resume: boolean,
  environment: EnvironmentChoice,
  began: number,
): Promise<QuickstartSummary | null> {
  const { progress = {} } = options;
  const { config } = run;
  const evaluator = await spawnEvaluator();
  try {
    const outcome = await trainRun(run, {
      resume,
      qualify: 'here',
      progress,
      environment,
      ...(options.shouldStop ? { shouldStop: options.shouldStop } : {}),
    });
    if (outcome.status === 'interrupted') return null;
    const storage = createNodeStorage(config.output);
    const { journal } = await openJournal(storage, 'journal.jsonl', () => new Date().toISOString());
    const sealed = journal.entries.findLast((entry) => entry.kind === 'checkpoint');
    if (sealed?.kind !== 'checkpoint') {
      throw new CheckpointError(
        'no-seal',
        `evaluating ${config.output}: the journal names no sealed checkpoint. Run it again.`,
      );
    }
    const { folder, sealSha256 } = sealed.data;
    const policy = { kind: 'checkpoint', root: config.output, folder, sealSha256 } as const;
    const before = await evaluation('before', 0, { kind: 'base' }, config, environment, evaluator, journal, progress);
    const after = await evaluation('after', config.steps, policy, config, environment, evaluator, journal, progress);
    const { report } = await reportRun(config.output);
    const { difference } = compareEvaluations(before.evaluation, after.evaluation, { seed: 20261020 });
    const strict = ({ evaluation: { totals } }: EvaluateAnswer) => ({ strict: totals.correct, n: totals.samples });
    const summary: QuickstartSummary = {
      seconds: Math.round((performance.now() - began) / 100) / 10,
      device: report.device.name,
      software: report.device.software,
      steps: outcome.steps,
      before: strict(before),
      after: strict(after),
      paired: {
        difference: difference.difference,
        low: difference.interval?.low ?? null,
        high: difference.interval?.high ?? null,
      },
      audit: { rollouts: report.audit.rollouts, findings: report.audit.findings },
      adapterSha256: outcome.adapterSha256,
    };
    writeFileSync(join(config.output, 'summary.json'), `${JSON.stringify(summary, null, 2)}\n`);
    return summary;
  } finally {
    await evaluator.stop();
  }
}
