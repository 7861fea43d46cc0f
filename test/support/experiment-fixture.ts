// An experiment without a device: a plan of the embedded policy, and ports whose training and evaluations are small
// deterministic functions of the sealed state, so that a fault in a checkpoint shows in everything after it.
// Not a stand-in for the device in the sense of results: the driver, the journal, the seals and the files are the
// real ones.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { checkpointFolder, newestVerified, sealCheckpoint, setAside, verifyCheckpoint } from '../../src/checkpoint.ts';
import { f32BitsHex } from '../../src/checkpoint-state.ts';
import { mathProblems } from '../../src/environments/german-math.ts';
import { parseMgsm } from '../../src/evaluation/mgsm.ts';
import { buildEvaluation, type EvaluationItem } from '../../src/evaluation/results.ts';
import { dataIdentity, type ExperimentData, experimentData } from '../../src/experiment/data.ts';
import { loadPlan } from '../../src/experiment/freeze-node.ts';
import { parseMathDev } from '../../src/experiment/math-dev.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import type { ExperimentPorts, UnitAnswer } from '../../src/experiment/ports.ts';
import { preparePlan } from '../../src/experiment/prepare-node.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import type { Unit } from '../../src/experiment/units.ts';
import { mergeToFolder } from '../../src/export/merge-node.ts';
import { learningRate } from '../../src/grpo/schedule.ts';
import { openJournal } from '../../src/journal.ts';
import { takePrompts } from '../../src/lib/data-order.ts';
import { RNG_DEFINITION, tokenUniform } from '../../src/lib/rng.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import type { BeforeWrite, Storage } from '../../src/lib/storage.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { initAdapter, resolveTargets } from '../../src/model/lora.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { treeSha256 } from '../../src/model/tree-hash-node.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import type { ResolvedRunConfig } from '../../src/run-config.ts';
import { decodeTrainState, encodeTrainState, type TrainState } from '../../src/train-state.ts';
import { reportExperiment } from '../../workers/experiment/report-node.ts';
import { identity } from './checkpoint-content.ts';

export const embedded = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));

/** A recipe that is small in every number. */
export const smallRecipe = {
  name: 'small',
  training: {
    steps: 4,
    data: { count: 8 },
    generation: { temperature: 1, topP: 1, topK: 0, maxCompletionTokens: 64 },
    grpo: { groupSize: 2 },
    lora: { rank: 2, alpha: 4, targets: ['q_proj'] },
    checkpoints: { every: 2 },
  },
  dev: { steps: [2, 4], episodes: 6, mathItems: 4 },
  final: { episodes: 6, seeds: [42, 1729] },
  retention: { items: 4, seeds: [42, 20261020] },
  comparison: { resamples: 100 },
  inspection: { items: 2 },
  budget: { wallSeconds: 1000, heartbeatSeconds: 600 },
};

export interface Inputs {
  baseline: string;
  tokenizer: string;
  mathDev: string;
  mgsm: string;
}

/** Inputs of a plan in a folder of their own, so that a test may change them. */
export function writeInputs(folder: string): Inputs {
  const baseline = join(folder, 'policy');
  cpSync(embedded, baseline, { recursive: true });
  const data = join(folder, 'math');
  mkdirSync(data);
  const lines = (values: readonly unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
  const problems = (seed: number, n: number) =>
    mathProblems(seed, n).map(({ id, question, answer }) => ({ id, question, answer }));
  writeFileSync(join(data, 'dev.jsonl'), lines(problems(42, 6)));
  writeFileSync(join(data, 'train.jsonl'), lines(problems(7, 6)));
  writeFileSync(
    join(data, 'mgsm.tsv'),
    problems(99, 4)
      .map((p) => `${p.question}\t${p.answer}\n`)
      .join(''),
  );
  return { baseline, tokenizer: baseline, mathDev: join(data, 'dev.jsonl'), mgsm: join(data, 'mgsm.tsv') };
}

type Prepared = LoadedPlan & { folder: string };
const prepared = new Map<string, Prepared>();

/**
 * A plan in a new folder under `base`. Prepared once for a recipe and copied from then on: the program is part of a
 * plan, and may be worked on while the tests run.
 */
export async function preparedPlan(base: string, inputs: Inputs, recipe: object = smallRecipe): Promise<Prepared> {
  const key = JSON.stringify([base, recipe]);
  let first = prepared.get(key);
  if (!first) {
    const output = join(mkdtempSync(join(base, 'plan-')), 'run');
    const parsed = parseRecipe(JSON.stringify(recipe), 'the test recipe');
    await preparePlan({ ...inputs, env: 'local', output, recipe: parsed, shaders: {} });
    first = { ...(await loadPlan(join(output, 'plan.json'), output)), folder: output };
    prepared.set(key, first);
  }
  const folder = mkdtempSync(join(base, 'experiment-'));
  cpSync(first.folder, folder, { recursive: true });
  return { ...first, folder };
}

const schedule = (run: ResolvedRunConfig) => {
  const { schedule: kind, learningRate: base } = run.config.optimizer;
  return { kind, base, totalSteps: run.config.steps };
};

/** A training that a resume can go wrong in: each step's values follow from the sealed ones and from seeded draws. */
export async function smallTraining(
  storage: Storage,
  run: ResolvedRunConfig,
  options: { stop: () => boolean; stopAfter?: number | null },
): Promise<'finished' | 'interrupted'> {
  const { config, sha256 } = run;
  const { journal } = await openJournal(storage, 'journal.jsonl', () => new Date(0).toISOString());
  const source = folderSource(config.model);
  const { architecture } = await openModelFiles(source);
  const lora = {
    rank: config.lora.rank,
    alpha: config.lora.alpha,
    useRslora: false,
    targets: resolveTargets(['q_proj']),
  };
  const start = initAdapter(architecture, lora, config.seed, config.model);
  let state: TrainState = { adapter: start.tensors, m: new Map(), v: new Map() };
  const zeros = () => new Map([...start.tensors].map(([name, values]) => [name, new Float32Array(values.length)]));
  state = { ...state, m: zeros(), v: zeros() };
  let step = 0;
  let cursor = { epoch: 0, index: 0 };
  if (journal.entries.some(({ kind }) => kind === 'run-start')) {
    const { checkpoint, skipped } = await newestVerified(storage);
    if (checkpoint) {
      state = await decodeTrainState(checkpoint.files, architecture, checkpoint.folder);
      ({ step, cursor } = checkpoint.state);
    }
    // As in the real one: what is not trusted is moved aside, and the journal says so.
    const moved = await setAside(storage, skipped);
    if (moved.length > 0) await journal.append({ kind: 'recovery', data: { moved } });
    const { folder = null, sealSha256 = null } = checkpoint ?? {};
    const data = { fromStep: step, folder, sealSha256, skipped, overrides: [], device: {}, versions: {} };
    await journal.append({ kind: 'resume', data });
  } else {
    await storage.write('run-config.json', new TextEncoder().encode(`${JSON.stringify(config, null, 2)}\n`));
    const data = {
      runId: sha256.slice(0, 16),
      planSha256: sha256,
      device: {},
      kernelFamily: 'portable' as const,
      versions: {},
      shaderDigests: {},
    };
    await journal.append({ kind: 'run-start', data });
  }
  while (step < config.steps) {
    step += 1;
    const taken = takePrompts(config.seed, config.data.count, cursor, 1);
    cursor = taken.cursor;
    // As in a rollout, the digest of the weights that sampled it.
    const policy = sha256Hex(encodeTrainState(state, lora, config.model)['adapter_model.safetensors']);
    const move = tokenUniform({ seed: config.seed, step, group: taken.indices[0]!, member: 0, position: 0 });
    const moved = (values: ReadonlyMap<string, Float32Array>, by: number) =>
      new Map([...values].map(([name, list]) => [name, list.map((value) => Math.fround(value + by))]));
    state = { adapter: moved(state.adapter, move * 1e-3), m: moved(state.m, move), v: moved(state.v, move * move) };
    const files = encodeTrainState(state, lora, config.model);
    const digest = sha256Hex(files['adapter_model.safetensors']);
    const episode = {
      step,
      prompts: taken.indices,
      policy,
      ids: [1, 2, 3],
      mask: [0, 1, 1],
      discardedTokens: 1,
      seconds: step,
    };
    const rollouts = new TextEncoder().encode(`${JSON.stringify(episode)}\n`);
    const file = `rollouts/step-${String(step).padStart(6, '0')}.jsonl`;
    await storage.write(file, rollouts);
    await journal.append({ kind: 'audit', data: { step, rollouts: 1, findings: [] } });
    await journal.append({
      kind: 'step',
      data: {
        step,
        metrics: { reward: move, step_time: 1 },
        adapterSha256: digest,
        optimizerSha256: sha256Hex(files['optimizer.safetensors']),
        rollouts: {
          file,
          sha256: sha256Hex(rollouts),
          evidenceSha256: sha256Hex(JSON.stringify({ ...episode, seconds: 0 })),
        },
        seconds: { train: 1 },
      },
    });
    const stop = options.stop() || options.stopAfter === step;
    if (step % config.checkpoints.every === 0 || step === config.steps || stop) {
      const sealed = await sealCheckpoint(storage, checkpointFolder(step), {
        files,
        state: {
          schema: 'shaderl.checkpoint/1',
          runId: sha256.slice(0, 16),
          planSha256: sha256,
          step,
          schedule: { kind: config.optimizer.schedule, position: step, total: config.steps },
          learningRateBits: f32BitsHex(learningRate(Math.min(step + 1, config.steps), schedule(run))),
          rng: { definition: RNG_DEFINITION, seed: config.seed, counters: { step: step + 1 } },
          cursor,
          identity,
          journal: journal.prefix(),
        },
      });
      const { folder, sealSha256 } = sealed;
      await journal.append({ kind: 'checkpoint', data: { step, folder, sealSha256 } });
    }
    if (stop && step < config.steps) return 'interrupted';
  }
  return 'finished';
}

/** An evaluation whose outcomes are seeded draws of policy, item and seed; a later step succeeds more often. */
export function smallAnswer(
  unit: Unit,
  adapterSha256: string | null,
  ids: readonly string[],
  dataSha256: string,
): UnitAnswer {
  const suite = unit.suite.endsWith('math') ? ('math' as const) : ('agent' as const);
  const rate = suite === 'math' ? 0.75 : 0.3 + 0.15 * unit.step;
  const items = ids.map((id, index): EvaluationItem => {
    const hit = tokenUniform({ seed: unit.seed, step: 0, group: index, member: 0, position: 0 }) < rate;
    return {
      id,
      seed: unit.seed,
      outcome: hit ? 'correct' : 'wrong',
      ...(suite === 'agent'
        ? { strict: hit, reward: hit ? 1 : 0.3, toolErrors: hit ? 0 : 1, invalidDispatches: 0 }
        : {}),
      capped: false,
      sampledTokens: 10,
      discardedTokens: 0,
      seconds: (index + unit.seed) % 7,
      finalText: `Antwort: ${index}`,
    };
  });
  const evaluation = buildEvaluation({
    suite,
    dataSha256,
    modelTreeSha256: '1'.repeat(64),
    adapterSha256,
    device: 'none',
    family: 'portable',
    sampling: {
      temperature: 1,
      topP: 1,
      topK: 0,
      minP: 0,
      maxTokens: 64,
      maxToolRounds: 3,
      thinking: true,
      thinkingBudget: null,
    },
    seeds: [unit.seed],
    wallSeconds: performance.now() % 5,
    items,
  });
  const episodes = items.map(({ id, seconds }) => ({ taskId: id, ids: [1, 2, 3], promptLength: 1, seconds }));
  return { evaluation, episodes: episodes as unknown as Episode[] };
}

export interface SmallPortsOptions {
  beforeWrite?: BeforeWrite;
  change?: (ports: ExperimentPorts) => Partial<ExperimentPorts>;
}

/** Ports over a plan's folder that need no device. */
export async function smallPorts(
  { plan, folder }: LoadedPlan & { folder: string },
  options: SmallPortsOptions = {},
): Promise<ExperimentPorts> {
  const open = (path: string) =>
    createNodeStorage(path, options.beforeWrite ? { beforeWrite: options.beforeWrite } : {});
  const storage = open(folder);
  const { journal } = await openJournal(storage, 'journal.jsonl', () => new Date().toISOString());
  const { recipe, inputs } = plan;
  const given = {
    mathDev: parseMathDev(readFileSync(inputs.mathDev.path, 'utf8'), '').map(({ id, question, gold }) => ({
      id,
      question,
      gold,
    })),
    mgsm: parseMgsm(readFileSync(inputs.mgsm.path, 'utf8'), ''),
  };
  const data: ExperimentData = experimentData(recipe, given, { mathDev: '', mgsm: '' });
  const lists = {
    'dev-agent': data.dev,
    'dev-math': data.mathDev,
    'final-agent': data.final,
    'retention-math': data.mgsm,
  };
  const at = (path: string) => open(join(folder, path));
  const ports: ExperimentPorts = {
    storage,
    storageAt: at,
    firstArm: plan.matched ? createNodeStorage(plan.matched.folder) : null,
    journal,
    seconds: () => 1,
    host: 'test',
    pid: 1,
    versions: {},
    stopRequested: () => false,
    planDifferences: async () => [],
    data: async () => data,
    device: async () => ({ facts: { device: 'none', family: 'portable' }, qualification: '{}\n' }),
    async openService() {},
    async branch(run, path, { stopAfter, stop }) {
      await smallTraining(at(path), run, { stop, stopAfter });
    },
    train: (run, { stop }) => smallTraining(at('training'), run, { stop }),
    async evaluate(unit, policy) {
      const list = lists[unit.suite];
      const sealed =
        policy.kind === 'checkpoint' ? await verifyCheckpoint(at('training'), policy.folder, policy.sealSha256) : null;
      const digest = sealed && sha256Hex(sealed.files['adapter_model.safetensors']);
      return smallAnswer(
        unit,
        digest,
        list.map(({ id }) => id),
        sha256Hex(dataIdentity(list)),
      );
    },
    async merge(checkpoint, output) {
      const files = await openModelFiles(folderSource(inputs.baseline.folder));
      const { files: content } = await verifyCheckpoint(at('training'), checkpoint.folder, checkpoint.sealSha256);
      const { config, adapter } = await decodeTrainState(content, files.architecture, checkpoint.folder);
      return mergeToFolder(files, { config, baseModel: 'policy', tensors: new Map(adapter) }, join(folder, output));
    },
    async mergedTree(path) {
      const source = folderSource(join(folder, path));
      return treeSha256(
        source,
        (await source.list()).filter((name) => name !== 'merge-audit.json'),
      );
    },
    report: async () => (await reportExperiment(folder)).report.contentSha256,
    progress: {},
  };
  return { ...ports, ...options.change?.(ports) };
}
