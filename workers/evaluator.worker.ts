// The evaluator: its own device, its own copy of the model, weights opened by their seal.
// Not the trainer's sampler. Invariant: it shares no memory with training, so an evaluation sees what was sealed.
import { performance } from 'node:perf_hooks';
import { verifyCheckpoint } from '../src/checkpoint.ts';
import { requireIdentity } from '../src/checkpoint-state.ts';
import { createGermanEnvironment } from '../src/environments/german-environment.ts';
import { INVALID_CALL_OBSERVATION } from '../src/environments/german-expert.ts';
import { devTasks, finalTasks } from '../src/environments/german-task.ts';
import type { Task } from '../src/environments/port.ts';
import { LOCAL, type ServiceAddress, slotsFor } from '../src/environments/service/choice.ts';
import { evaluateAgent, evaluateMath } from '../src/evaluate.ts';
import { buildEvaluation } from '../src/evaluation/results.ts';
import { type Gpu, type KernelFamily, openGpu } from '../src/gpu/device.ts';
import { germanPrompts, type LongestPrompt, longestPrompt, mathPrompts } from '../src/item-prompts.ts';
import { canonicalBytes } from '../src/lib/canonical-json.ts';
import { PlanError } from '../src/lib/errors.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import { createNodeStorage } from '../src/lib/storage-node.ts';
import { encodeAdapter, type LoadedAdapter, loadAdapter } from '../src/model/adapter-files.ts';
import { type GpuAdapter, loadGpuAdapter, releaseAdapter } from '../src/model/adapter-gpu.ts';
import { type BaseModel, openBase } from '../src/model/base-node.ts';
import { canarySettingOf, checkLoadedAdapter } from '../src/model/canary-measure.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { RolloutSettings } from '../src/rollout/member.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { checkpointAdapter, requireSealedBase } from '../src/train-state.ts';
import { type StartedEnvironment, spawnEnvironment } from './environment-node.ts';
import type { EvaluateAnswer, EvaluatedPolicy, EvaluateRequest, EvaluationSuite, Evaluator } from './evaluation-api.ts';
import { shadersSha256 } from './run-identity.ts';
import { serve } from './serve.ts';

/** Positions for prompts at the least, so that suites of short prompts share one copy of the model. */
const promptRoom = 512;

interface Opened {
  folder: string;
  family: KernelFamily;
  base: BaseModel;
  model: GpuModel;
  length: number;
}

function tasksOf({ split, seed, episodes }: Extract<EvaluationSuite, { kind: 'agent' }>): Task[] {
  return (split === 'dev' ? devTasks : finalTasks)(seed, episodes);
}

/** The adapter of a policy; a sealed one is refused on another base, tokenizer or template than it was trained on. */
async function openAdapter(policy: EvaluatedPolicy, base: BaseModel): Promise<LoadedAdapter | null> {
  const arch = base.files.architecture;
  if (policy.kind === 'base') return null;
  if (policy.kind === 'adapter') {
    const source = folderSource(policy.folder);
    await requireSealedBase(source, base.hashes);
    return loadAdapter(source, arch);
  }
  const checkpoint = await verifyCheckpoint(createNodeStorage(policy.root), policy.folder, policy.sealSha256);
  const { identity } = checkpoint.state;
  requireIdentity(`${policy.root}/${policy.folder}`, identity, { ...identity, ...base.hashes });
  return checkpointAdapter(checkpoint, arch);
}

/** Clients of services, one an address: in workers of their own, because this thread waits for its device. */
function createClients() {
  const started = new Map<string, StartedEnvironment>();
  return {
    async port(address: ServiceAddress) {
      const key = JSON.stringify(address);
      const known = started.get(key) ?? (await spawnEnvironment(address));
      started.set(key, known);
      return known.port;
    },
    /** Ends the sessions of a client that failed in mid-work. */
    async drop(address: ServiceAddress) {
      const key = JSON.stringify(address);
      const client = started.get(key);
      started.delete(key);
      await client?.stop();
    },
    stop: () => Promise.all([...started.values()].map((client) => client.stop())),
  };
}

function createEvaluator(gpu: Gpu, clients: ReturnType<typeof createClients>): Evaluator {
  let opened: Opened | null = null;
  /** Longest prompts by what they are of. */
  const measured = new Map<string, LongestPrompt>();
  let status = { finished: 0, total: 0 };

  /** The longest prompt of a suite, which must leave room for the cap. Throws PlanError `too-few-positions`. */
  function requirePositions({ model, suite, sampling }: EvaluateRequest, base: BaseModel): LongestPrompt {
    const items = suite.kind === 'agent' ? [suite.split, suite.seed, suite.episodes] : [suite.dataSha256];
    const key = JSON.stringify([base.hashes, sampling.thinking, suite.kind, ...items]);
    const prompts = () => (suite.kind === 'agent' ? germanPrompts(tasksOf(suite)) : mathPrompts(suite.items));
    const longest = measured.get(key) ?? longestPrompt(base.text, prompts(), sampling.thinking);
    measured.set(key, longest);
    const { maxPositions } = base.files.architecture;
    const room = maxPositions - longest.tokens;
    if (sampling.maxTokens <= room) return longest;
    const remedy = room < 1 ? 'Take the item out, or use another model.' : `Generate at most ${room} tokens.`;
    throw new PlanError(
      'too-few-positions',
      `evaluating ${model} on suite ${suite.kind}: found item ${longest.id} with a prompt of ${longest.tokens} tokens, ` +
        `${longest.tokens + sampling.maxTokens} with the ${sampling.maxTokens} that may follow; wanted at most ` +
        `${maxPositions}, the positions of the model (max_position_embeddings in its config.json). ${remedy}`,
    );
  }

  /** A request's model with room for its longest prompt and its cap. */
  async function open(request: EvaluateRequest): Promise<Opened> {
    const { model: folder, family, sampling } = request;
    const known = opened?.folder === folder ? opened : null;
    const base = known?.base ?? (await openBase(folder));
    const longest = requirePositions(request, base);
    const length = Math.min(
      base.files.architecture.maxPositions,
      Math.max(promptRoom, longest.tokens) + sampling.maxTokens,
    );
    if (known && known.family === family && known.length >= length) return known;
    opened?.model.destroy();
    opened = null;
    const { model } = await loadFamilyWeights(gpu, base.files, family, { positions: length });
    opened = { folder, family, base, model, length };
    return opened;
  }

  /** What the canary of the adapter on the device shows; one that fails is not evaluated. */
  async function checked(
    family: KernelFamily,
    model: GpuModel,
    adapter: LoadedAdapter,
    onDevice: GpuAdapter,
    vocabulary: number,
  ): Promise<string> {
    const setting = canarySettingOf(gpu, family, shadersSha256());
    try {
      return await checkLoadedAdapter(gpu, model, adapter, onDevice, vocabulary, setting);
    } catch (error) {
      releaseAdapter(gpu, onDevice.views);
      throw error;
    }
  }

  async function evaluate(request: EvaluateRequest): Promise<EvaluateAnswer> {
    const { suite, sampling, seeds } = request;
    const began = performance.now();
    const { base, model, length } = await open(request);
    const arch = base.files.architecture;
    const adapter = await openAdapter(request.policy, base);
    const onDevice = adapter && loadGpuAdapter(gpu, arch, adapter);
    const canary = onDevice && (await checked(request.family, model, adapter, onDevice, base.vocabulary));
    const environment = request.environment ?? LOCAL;
    const shape = { slots: slotsFor(environment, request.slots), cacheLength: length, rows: 1024 };
    const sampler = createSampler(gpu, model, shape, sampling, base.vocabulary, onDevice?.layout ?? null);
    sampler.use(onDevice);
    const adapterSha256 = adapter && sha256Hex(encodeAdapter(adapter)['adapter_model.safetensors']);
    const settings: RolloutSettings = {
      temperature: sampling.temperature,
      maxCompletionTokens: sampling.maxTokens,
      maxToolRounds: sampling.maxToolRounds,
      enableThinking: sampling.thinking,
      invalidCallObservation: INVALID_CALL_OBSERVATION,
      policy: adapterSha256 ?? 'base',
    };
    status = { finished: 0, total: 0 };
    const ports = {
      sampler,
      text: base.text,
      now: () => performance.now(),
      onProgress: (finished: number, total: number) => {
        status = { finished, total };
      },
    };
    try {
      const tasks = suite.kind === 'agent' ? tasksOf(suite) : [];
      const port = environment.kind === 'local' ? createGermanEnvironment() : await clients.port(environment);
      const made =
        suite.kind === 'agent'
          ? await evaluateAgent(tasks, seeds, settings, port, ports)
          : await evaluateMath(suite.items, seeds, settings, ports);
      const evaluation = buildEvaluation({
        suite: suite.kind,
        dataSha256: suite.kind === 'agent' ? sha256Hex(canonicalBytes(tasks)) : suite.dataSha256,
        modelTreeSha256: base.hashes.baseModel,
        adapterSha256,
        device: gpu.identity.description || gpu.identity.device,
        family: request.family,
        sampling: {
          ...sampling,
          thinkingBudget: null,
          maxToolRounds: suite.kind === 'agent' ? sampling.maxToolRounds : 0,
        },
        seeds,
        wallSeconds: (performance.now() - began) / 1000,
        droppedTokens: made.droppedTokens,
        items: made.items,
      });
      return { evaluation, episodes: made.episodes, canary };
    } catch (error) {
      if (environment.kind === 'service') await clients.drop(environment);
      throw error;
    } finally {
      sampler.destroy();
      if (onDevice) releaseAdapter(gpu, onDevice.views);
    }
  }

  return { evaluate, progress: async () => status };
}

await serve(async () => {
  const gpu = await openGpu();
  const clients = createClients();
  return {
    service: createEvaluator(gpu, clients),
    async dispose() {
      await clients.stop();
      gpu.destroy();
    },
  };
});
