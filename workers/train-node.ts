// Assembles a training run on this machine from its configuration: device, model, environment worker, evaluator worker,
// storage; and runs it. Not the loop (src/train.ts). Invariant: a run folder belongs to one configuration; a used folder
// is only entered with `resume`, and what fails to verify is moved to recovery/, never deleted.
import { performance } from 'node:perf_hooks';
import { checkpointFolder, newestVerified, retainCheckpoints, sealCheckpoint, setAside } from '../src/checkpoint.ts';
import { type CheckpointIdentity, f32BitsHex, requireIdentity } from '../src/checkpoint-state.ts';
import { type EnvironmentChoice, LOCAL } from '../src/environments/service/choice.ts';
import { SERVICE_FILE, type ServiceFacts } from '../src/experiment/service-facts.ts';
import { type Gpu, openGpu } from '../src/gpu/device.ts';
import { learningRate } from '../src/grpo/schedule.ts';
import { createTrainer, type Trainer } from '../src/grpo/step.ts';
import { type Journal, openJournal, requirePrefix } from '../src/journal.ts';
import { CheckpointError, PlanError } from '../src/lib/errors.ts';
import { RNG_DEFINITION } from '../src/lib/rng.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import type { Storage } from '../src/lib/storage.ts';
import { createNodeStorage } from '../src/lib/storage-node.ts';
import { adapterLayout, loadGpuAdapter } from '../src/model/adapter-gpu.ts';
import { type BaseModel, openBase } from '../src/model/base-node.ts';
import { encodeCanary } from '../src/model/canary.ts';
import { canarySettingOf, checkLoadedAdapter, makeCanary } from '../src/model/canary-measure.ts';
import type { MatrixReport } from '../src/model/matrix-weights.ts';
import { loadForWork } from '../src/model/warm-up.ts';
import { ensureQualifiedDevice, requireQualifiedDevice } from '../src/qualification-node.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import type { ResolvedRunConfig, RunConfig } from '../src/run-config.ts';
import { type SealedState, train } from '../src/train.ts';
import { trainStateDigests } from '../src/train-digests-node.ts';
import { decodeTrainState, encodeTrainState } from '../src/train-state.ts';
import { trainerOptions } from '../src/trainer-options.ts';
import { spawnEnvironment } from './environment-node.ts';
import { openRunData, type RunData } from './run-data.ts';
import { runVersions, shaderDigests, shadersSha256 } from './run-identity.ts';
import { inputVersions, keepInputs, type RunInput, serviceInput, tasksInput } from './run-inputs.ts';
import { samplerShape, trainingRehearsal } from './run-rehearsal.ts';
import { deviceFacts, requirePositions, runLength, startingAdapter, trainerShape } from './run-trainer.ts';

export interface TrainProgress {
  onStep?: (step: number, steps: number, metrics: Record<string, number>) => void;
  onRollout?: (step: number, finished: number, total: number) => void;
  onNote?: (text: string) => void;
}

export interface TrainRunOptions {
  resume: boolean;
  progress?: TrainProgress;
  /** `here`: qualify a device that has no qualification; otherwise such a device is refused. */
  qualify?: 'here';
  /** Asked after every step; true stops with everything sealed. */
  shouldStop?: (step: number) => boolean;
  /** Where the task is served; in process by default. For the German task it changes no byte of a run. */
  environment?: EnvironmentChoice;
  /** What is known of the service behind `environment`; null, the default, for the German task. */
  service?: ServiceFacts | null;
  /** What is trained on, where it was opened already. */
  data?: RunData;
  /** Folder to write to instead of the configuration's `output`, which is then a name only. */
  folder?: string;
}

export interface TrainOutcome {
  output: string;
  /** Completed steps. */
  steps: number;
  status: 'finished' | 'interrupted';
  adapterSha256: string;
}

const journalFile = 'journal.jsonl';

function identityOf(base: BaseModel, gpu: Gpu, config: RunConfig, environment: string): CheckpointIdentity {
  return {
    ...base.hashes,
    environment,
    kernelFamily: config.kernels.family,
    device: deviceFacts(gpu),
  };
}

/** Opens the journal of a folder and refuses one that was used without `resume`, or by another configuration. */
async function enterFolder(storage: Storage, run: ResolvedRunConfig, resume: boolean): Promise<Journal> {
  const { journal, torn } = await openJournal(storage, journalFile, () => new Date().toISOString());
  const start = journal.entries.find((entry) => entry.kind === 'run-start');
  if (torn)
    await journal.append({
      kind: 'recovery',
      data: { moved: [{ from: journalFile, to: torn.to, reason: 'a torn last line' }] },
    });
  if (start && !resume) {
    const message = `starting a run in ${storage.label}: it holds a run already (${journal.entries.length} journal entries). Give --resume to go on with it, or another output folder.`;
    throw new PlanError('used-folder', message);
  }
  if (start?.kind === 'run-start' && start.data.planSha256 !== run.sha256) {
    const message = `resuming ${storage.label}: its configuration has SHA-256 ${start.data.planSha256}, this one ${run.sha256}. Resume with the configuration that the run was started with (run-config.json).`;
    throw new PlanError('other-config', message);
  }
  return journal;
}

/** What the matrix family made of the weights, as a note. */
function matrixNote({ matrices, portable, elements, inexact }: MatrixReport): string {
  const rest = portable.length > 0 ? `; portable: ${portable.join(', ')}` : '';
  return `matrix family: ${matrices} matrices, ${inexact} of ${elements} weights inexact in f16${rest}`;
}

/** Restores the newest verified checkpoint, or says that there is none. */
async function restore(
  storage: Storage,
  journal: Journal,
  trainer: Trainer,
  run: ResolvedRunConfig,
  base: BaseModel,
  identity: CheckpointIdentity,
  gpu: Gpu,
): Promise<SealedState> {
  const { checkpoint, skipped } = await newestVerified(storage);
  const device = identity.device;
  if (!checkpoint) {
    await journal.append({
      kind: 'resume',
      data: { fromStep: 0, folder: null, sealSha256: null, skipped, overrides: [], device, versions: runVersions(gpu) },
    });
    return { step: 0, cursor: { epoch: 0, index: 0 } };
  }
  const { state, folder, sealSha256 } = checkpoint;
  if (state.planSha256 !== run.sha256) {
    const message = `resuming from ${folder}: it was sealed under configuration ${state.planSha256}, this one is ${run.sha256}. Use the configuration that sealed it.`;
    throw new CheckpointError('other-config', message);
  }
  const overrides = requireIdentity(`${storage.label}/${folder}`, state.identity, identity);
  requirePrefix(journal.entries, state.journal, `${storage.label}/${folder}`);
  trainer.restore(await decodeTrainState(checkpoint.files, base.files.architecture, folder));
  const moved = await setAside(storage, skipped);
  if (moved.length > 0) await journal.append({ kind: 'recovery', data: { moved } });
  await journal.append({
    kind: 'resume',
    data: { fromStep: state.step, folder, sealSha256, skipped, overrides, device, versions: runVersions(gpu) },
  });
  return { step: state.step, cursor: state.cursor };
}

/** Refuses an environment that is not the configuration's: the tasks of one are not those of the other. */
function requireEnvironment(choice: EnvironmentChoice, service: ServiceFacts | null, { data }: RunConfig): void {
  const own = choice.kind === 'service' && choice.client.tasks === 'own';
  const known = service !== null;
  if (own === (data.environment !== 'german') && own === known) return;
  const kind = own ? `a service with tasks of its own, ${known ? '' : 'un'}known by its facts,` : 'the german task';
  const message = `starting a run on ${data.environment} tasks: found ${kind} as its environment; wanted that of data.environment, with its facts where it is a service. Start it as \`shaderl train\` does.`;
  throw new PlanError('other-environment', message);
}

/**
 * Runs (or resumes) training as configured. The folder gets run-config.json, journal.jsonl, rollouts/, checkpoints/.
 * @throws PlanError `used-folder` without `resume`; CheckpointError, AuditError, DeviceError as their boundaries say.
 */
export async function trainRun(run: ResolvedRunConfig, options: TrainRunOptions): Promise<TrainOutcome> {
  const { config } = run;
  const { progress = {}, environment: choice = LOCAL } = options;
  const data = options.data ?? openRunData(config);
  const service = options.service ?? null;
  requireEnvironment(choice, service, config);
  const inputs: RunInput[] = [
    ...(data.file === null ? [] : [tasksInput(data.file, config.data.tasks ?? 'the tasks')]),
    ...(service === null ? [] : [serviceInput(service)]),
  ];
  const storage = createNodeStorage(options.folder ?? config.output);
  const journal = await enterFolder(storage, run, options.resume);
  const base = await openBase(config.model);
  const arch = base.files.architecture;
  const positions = requirePositions(config, data.tasks, base);
  if (positions !== null) progress.onNote?.(positions);
  const gpu = await openGpu();
  const environment = await spawnEnvironment(choice).catch((error: unknown) => {
    gpu.destroy();
    throw error;
  });
  const began = performance.now();
  try {
    await (options.qualify === 'here' ? ensureQualifiedDevice : requireQualifiedDevice)(gpu, config.kernels.family);
    const initial = await startingAdapter(config, base);
    const length = runLength(config, arch);
    const rehearsal = trainingRehearsal(config, initial.config, length, base.vocabulary);
    const { family } = config.kernels;
    const { model, report } = await loadForWork(gpu, base.files, family, { positions: length }, rehearsal);
    if (report) progress.onNote?.(matrixNote(report));
    const layout = adapterLayout(arch, initial.config);
    const shape = samplerShape(config, length);
    const sampler = createSampler(gpu, model, shape, config.generation, base.vocabulary, layout);
    const trainer = createTrainer(
      gpu,
      model,
      layout,
      initial,
      trainerShape(config, length),
      trainerOptions(config, base.vocabulary),
      config.adapter === null ? null : loadGpuAdapter(gpu, arch, initial),
    );
    const setting = canarySettingOf(gpu, config.kernels.family, shadersSha256());
    if (initial.loaded) {
      const { vocabulary } = base;
      progress.onNote?.(await checkLoadedAdapter(gpu, model, initial.loaded, trainer.adapter, vocabulary, setting));
    }
    const sealedService = inputs.filter(({ file }) => file === SERVICE_FILE).map(({ sha256 }) => `, service ${sha256}`);
    const identity = identityOf(base, gpu, config, [data.environment, ...sealedService].join(''));
    const files = async () => encodeTrainState(await trainer.state(), initial.config, initial.baseModel);
    let start: SealedState = { step: 0, cursor: { epoch: 0, index: 0 } };
    const begun = journal.entries.find((entry) => entry.kind === 'run-start');
    await keepInputs(storage, inputs, begun?.kind === 'run-start' ? begun.data.versions : null);
    if (begun) {
      start = await restore(storage, journal, trainer, run, base, identity, gpu);
    } else {
      await storage.write('run-config.json', new TextEncoder().encode(`${JSON.stringify(config, null, 2)}\n`));
      await journal.append({
        kind: 'run-start',
        data: {
          runId: run.sha256.slice(0, 16),
          planSha256: run.sha256,
          device: identity.device,
          kernelFamily: config.kernels.family,
          versions: { ...runVersions(gpu), ...inputVersions(inputs) },
          shaderDigests: shaderDigests(),
        },
      });
    }
    const canaryOf = async (adapterSha256: string) =>
      encodeCanary(await makeCanary(gpu, model, trainer.adapter, base.vocabulary, adapterSha256, setting));
    const schedule = { kind: config.optimizer.schedule, base: config.optimizer.learningRate, totalSteps: config.steps };
    const { port, auditRollouts, auditLogprobs } = data.connect(environment.port, base.text, storage);
    const reached = await train(
      config,
      {
        storage,
        journal,
        trainer,
        sampler,
        text: base.text,
        environment: port,
        tasks: data.tasks,
        invalidCallObservation: data.invalidCallObservation,
        auditRollouts,
        auditLogprobs,
        digests: async () => trainStateDigests(await trainer.state(), initial.config),
        async seal(state) {
          const next = Math.min(state.step + 1, config.steps);
          const content = await files();
          const sealed = await sealCheckpoint(storage, checkpointFolder(state.step), {
            files: content,
            canary: await canaryOf(sha256Hex(content['adapter_model.safetensors'])),
            state: {
              schema: 'shaderl.checkpoint/1',
              runId: run.sha256.slice(0, 16),
              planSha256: run.sha256,
              step: state.step,
              schedule: { kind: schedule.kind, position: state.step, total: config.steps },
              learningRateBits: f32BitsHex(learningRate(next, schedule)),
              rng: { definition: RNG_DEFINITION, seed: config.seed, counters: { step: state.step + 1 } },
              cursor: state.cursor,
              identity,
              journal: journal.prefix(),
            },
          });
          await journal.append({
            kind: 'checkpoint',
            data: { step: state.step, folder: sealed.folder, sealSha256: sealed.sealSha256 },
          });
          if (config.checkpoints.keep !== 'all') await retainCheckpoints(storage, config.checkpoints.keep);
        },
        now: () => performance.now(),
        shouldStop: options.shouldStop ?? (() => false),
        onStep: (step, metrics) => progress.onStep?.(step, config.steps, metrics),
        ...(progress.onRollout ? { onRollout: progress.onRollout } : {}),
      },
      start,
    );
    const finished = reached.step === config.steps;
    await journal.append({
      kind: 'run-end',
      data: {
        status: finished ? 'finished' : 'interrupted',
        step: reached.step,
        adapterSha256: reached.adapter,
        reason: finished ? '' : 'asked to stop',
        seconds: (performance.now() - began) / 1000,
      },
    });
    return {
      output: options.folder ?? config.output,
      steps: reached.step,
      status: finished ? 'finished' : 'interrupted',
      adapterSha256: reached.adapter,
    };
  } finally {
    await environment.stop();
    gpu.destroy();
  }
}
