// Runs an experiment on this machine: the lock, the folder, the device, the evaluator and the qualification's processes
// as the ports of the driver (src/experiment/driver.ts).
// Not the order of things. Invariant: the lock is held from before the journal is opened until after its last line.

import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { performance } from 'node:perf_hooks';
import { verifyCheckpoint } from '../src/checkpoint.ts';
import { inspectAdapter } from '../src/doctor.ts';
import { type EnvironmentChoice, LOCAL } from '../src/environments/service/choice.ts';
import { parseMgsm } from '../src/evaluation/mgsm.ts';
import { type ExperimentData, experimentData } from '../src/experiment/data.ts';
import { requirePlanFamily } from '../src/experiment/device-facts.ts';
import { type ExperimentOutcome, runExperiment } from '../src/experiment/driver.ts';
import { loadPlan, planDifferences } from '../src/experiment/freeze-node.ts';
import { acquireLock, readLock } from '../src/experiment/lock-node.ts';
import { parseMathDev } from '../src/experiment/math-dev.ts';
import { type LoadedPlan, type Plan, TRAINING_FOLDER } from '../src/experiment/plan.ts';
import type { DeviceFacts, ExperimentPorts, ExperimentProgressPorts } from '../src/experiment/ports.ts';
import type { Unit } from '../src/experiment/units.ts';
import { MERGE_AUDIT, mergeToFolder } from '../src/export/merge-node.ts';
import { openGpu } from '../src/gpu/device.ts';
import { openJournal, tornLineNote } from '../src/journal.ts';
import { PlanError } from '../src/lib/errors.ts';
import { createNodeStorage } from '../src/lib/storage-node.ts';
import { openBase } from '../src/model/base-node.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { treeSha256 } from '../src/model/tree-hash-node.ts';
import { formatQualification } from '../src/qualification.ts';
import { ensureQualifiedDevice } from '../src/qualification-node.ts';
import { decodeTrainState } from '../src/train-state.ts';
import { type SpawnedEvaluator, spawnEvaluator } from './evaluate-node.ts';
import type { EvaluatedPolicy } from './evaluation-api.ts';
import { runBranch } from './experiment/branch-node.ts';
import { reportExperiment } from './experiment/report-node.ts';
import { openPlanService, type RunningService } from './experiment/service-plan.ts';
import { trainRun } from './train-node.ts';

export interface RunExperimentOptions {
  /** plan.json; the experiment lives in its folder. */
  plan: string;
  resume: boolean;
  qualificationOnly: boolean;
  /** Host whose lock a person declares dead. */
  takeLockFrom?: string;
  stopRequested?: () => boolean;
  progress?: ExperimentProgressPorts;
}

const pollMs = 200;
const slots = 32;

function programVersions(): Record<string, string> {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  return { shaderl: version, node: process.versions.node, v8: process.versions.v8 };
}

/** The plan's data, made again from the files that it names. */
function planData({ recipe, inputs }: Plan): ExperimentData {
  const read = (path: string) => readFileSync(path, 'utf8');
  const { mathDev, mgsm } = inputs;
  const items = parseMathDev(read(mathDev.path), mathDev.path).map(({ id, question, gold }) => ({
    id,
    question,
    gold,
  }));
  const given = { mathDev: items, mgsm: parseMgsm(read(mgsm.path), mgsm.path) };
  return experimentData(recipe, given, { mathDev: mathDev.path, mgsm: mgsm.path });
}

async function deviceOf({ kernels }: Plan, label: string): Promise<{ facts: DeviceFacts; qualification: string }> {
  const report = await inspectAdapter();
  // Without an adapter, opening the device says so with its remedy.
  if (report) requirePlanFamily(kernels.family, report.families[kernels.family], report.driver, label);
  const gpu = await openGpu();
  try {
    const qualification = await ensureQualifiedDevice(gpu, kernels.family);
    const { vendor, architecture, device, description, dawn, toggles } = gpu.identity;
    const facts = { vendor, architecture, device, description, dawn, toggles: toggles.join(' ') };
    const bound = { ...facts, node: process.versions.node, family: kernels.family };
    return { facts: bound, qualification: formatQualification(qualification) };
  } finally {
    gpu.destroy();
  }
}

/** An evaluator that is started when it is first needed, and ended in mid-work when the run is to stop. */
function lazyEvaluator() {
  let spawned: SpawnedEvaluator | null = null;
  return {
    async evaluate(
      request: Parameters<SpawnedEvaluator['evaluate']>[0],
      onProgress: (finished: number, total: number) => void,
      stop: () => boolean,
    ) {
      spawned ??= await spawnEvaluator();
      const own = spawned;
      const timer = setInterval(() => {
        if (stop()) void own.stop();
      }, pollMs);
      try {
        return await own.evaluate(request, onProgress);
      } finally {
        clearInterval(timer);
      }
    },
    stop: () => spawned?.stop(),
  };
}

/** One arm on the GPU at a time. */
function requireGpuReleased({ plan: { matched } }: LoadedPlan, file: string): void {
  const lock = matched && readLock(matched.folder);
  if (lock?.state !== 'held') return;
  throw new PlanError(
    'other-arm-running',
    `running ${file}: found pid ${lock.holder?.pid} at work on the first arm in ${matched!.folder}; wanted it to have ` +
      'released the GPU. Use `shaderl queue`, which waits for it.',
  );
}

/** Runs, or goes on with, the plan in a file. @throws PlanError `locked` and everything that the driver throws. */
export async function runPlan(options: RunExperimentOptions): Promise<ExperimentOutcome & { folder: string }> {
  const began = performance.now();
  const { progress = {}, stopRequested = () => false } = options;
  const file = resolve(options.plan);
  const folder = dirname(file);
  const loaded = await loadPlan(file, folder);
  requireGpuReleased(loaded, file);
  const lock = acquireLock(folder, options.takeLockFrom ?? null);
  if (lock.tookOver) progress.onNote?.(`took over the lock of pid ${lock.tookOver.pid} on ${lock.tookOver.host}`);
  const evaluator = lazyEvaluator();
  let service: RunningService | null = null;
  const environment = (): EnvironmentChoice => service?.address ?? LOCAL;
  try {
    const storage = createNodeStorage(folder);
    const { journal, torn } = await openJournal(storage, 'journal.jsonl', () => new Date().toISOString());
    if (torn) progress.onNote?.(tornLineNote(torn, folder));
    const ports: ExperimentPorts = {
      storage,
      storageAt: (path) => createNodeStorage(join(folder, path)),
      firstArm: loaded.plan.matched ? createNodeStorage(loaded.plan.matched.folder) : null,
      journal,
      seconds: () => (performance.now() - began) / 1000,
      host: hostname(),
      pid: process.pid,
      versions: programVersions(),
      stopRequested,
      planDifferences: () => planDifferences(loaded.plan, folder),
      data: async () => planData(loaded.plan),
      device: () => deviceOf(loaded.plan, folder),
      async openService(attempt) {
        if (loaded.plan.service) service = await openPlanService(loaded.plan, folder, attempt);
      },
      branch: (run, path, { resume, stopAfter, stop }) =>
        runBranch(
          {
            config: JSON.stringify(run.config),
            folder: join(folder, path),
            resume,
            stopAfter,
            environment: environment(),
          },
          stop,
          (notice) => {
            if (notice.notice === 'step') progress.onStep?.(notice.step, notice.steps, notice.metrics);
            if (notice.notice === 'rollout') progress.onRollout?.(notice.step, notice.finished, notice.total);
          },
        ),
      async train(run, { resume, stop }) {
        const { onStep, onRollout, onNote } = progress;
        const shown = { ...(onStep && { onStep }), ...(onRollout && { onRollout }), ...(onNote && { onNote }) };
        const path = join(folder, TRAINING_FOLDER);
        const options = { resume, folder: path, shouldStop: stop, progress: shown, environment: environment() };
        return (await trainRun(run, options)).status;
      },
      evaluate: (unit, policy, suite, stop) =>
        evaluator.evaluate(
          { ...requestOf(loaded, folder, unit, policy), suite, seeds: [unit.seed], slots, environment: environment() },
          (finished, total) => progress.onEvaluation?.(unit.name, finished, total),
          stop,
        ),
      async merge(checkpoint, output) {
        const { files } = await openBase(loaded.plan.inputs.baseline.folder);
        const training = createNodeStorage(join(folder, TRAINING_FOLDER));
        const { files: content } = await verifyCheckpoint(training, checkpoint.folder, checkpoint.sealSha256);
        const { config, adapter } = await decodeTrainState(content, files.architecture, checkpoint.folder);
        const named = { config, baseModel: loaded.plan.inputs.baseline.folder, tensors: new Map(adapter) };
        return mergeToFolder(files, named, join(folder, output));
      },
      async mergedTree(path) {
        const source = folderSource(join(folder, path));
        return treeSha256(
          source,
          (await source.list()).filter((name) => name !== MERGE_AUDIT),
        );
      },
      report: async () => (await reportExperiment(folder)).report.contentSha256,
      progress,
    };
    const { resume, qualificationOnly } = options;
    return { ...(await runExperiment(loaded, ports, { resume, qualificationOnly })), folder };
  } finally {
    await evaluator.stop();
    await (service as RunningService | null)?.stop();
    lock.release();
  }
}

function requestOf(
  { plan }: LoadedPlan,
  folder: string,
  { suite }: Unit,
  policy: Parameters<ExperimentPorts['evaluate']>[1],
) {
  const { generation } = plan.recipe.training;
  const { temperature, topP, topK, minP, maxToolRounds, enableThinking } = generation;
  const maxTokens = plan.positions.sets[suite].completionCap;
  const base = plan.inputs.baseline.folder;
  const evaluated: EvaluatedPolicy =
    policy.kind === 'checkpoint'
      ? {
          kind: 'checkpoint',
          root: join(folder, TRAINING_FOLDER),
          folder: policy.folder,
          sealSha256: policy.sealSha256,
        }
      : { kind: 'base' };
  return {
    model: policy.kind === 'merged' ? join(folder, policy.folder) : base,
    family: plan.kernels.family,
    policy: evaluated,
    sampling: { temperature, topP, topK, minP, maxTokens, maxToolRounds, thinking: enableThinking },
  };
}
