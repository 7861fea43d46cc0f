// The evaluator: its own device, its own copy of the model, weights opened by their seal.
// Not the trainer's sampler. Invariant: it shares no memory with training, so an evaluation sees what was sealed.
import { performance } from 'node:perf_hooks';
import { verifyCheckpoint } from '../src/checkpoint.ts';
import { createGermanEnvironment } from '../src/environments/german-environment.ts';
import { INVALID_CALL_OBSERVATION } from '../src/environments/german-expert.ts';
import { devTasks, finalTasks } from '../src/environments/german-task.ts';
import { evaluateAgent, evaluateMath } from '../src/evaluate.ts';
import { buildEvaluation } from '../src/evaluation/results.ts';
import { type Gpu, type KernelFamily, openGpu } from '../src/gpu/device.ts';
import { canonicalBytes } from '../src/lib/canonical-json.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import { createNodeStorage } from '../src/lib/storage-node.ts';
import { encodeAdapter, loadAdapter } from '../src/model/adapter-files.ts';
import { loadGpuAdapter, releaseAdapter } from '../src/model/adapter-gpu.ts';
import { type BaseModel, openBase } from '../src/model/base-node.ts';
import type { Architecture } from '../src/model/config.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import type { Adapter } from '../src/model/lora.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import type { GpuModel } from '../src/model/weights.ts';
import type { RolloutSettings } from '../src/rollout/member.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { decodeTrainState } from '../src/train-state.ts';
import type { EvaluateAnswer, EvaluatedPolicy, EvaluateRequest, Evaluator } from './evaluation-api.ts';
import { serve } from './serve.ts';

const promptRoom = 512;

interface Opened {
  folder: string;
  family: KernelFamily;
  base: BaseModel;
  model: GpuModel;
  length: number;
}

async function openAdapter(policy: EvaluatedPolicy, arch: Architecture): Promise<Adapter | null> {
  if (policy.kind === 'base') return null;
  if (policy.kind === 'adapter') return loadAdapter(folderSource(policy.folder), arch);
  const checkpoint = await verifyCheckpoint(createNodeStorage(policy.root), policy.folder, policy.sealSha256);
  const { config, adapter } = await decodeTrainState(checkpoint.files, arch, policy.folder);
  return { config, baseModel: '', tensors: new Map(adapter) };
}

function createEvaluator(gpu: Gpu): Evaluator {
  let opened: Opened | null = null;
  let status = { finished: 0, total: 0 };

  async function open(folder: string, family: KernelFamily, length: number): Promise<Opened> {
    if (opened && opened.folder === folder && opened.family === family && opened.length >= length) return opened;
    opened?.model.destroy();
    const base = await openBase(folder);
    const { model } = await loadFamilyWeights(gpu, base.files, family, { positions: length });
    opened = { folder, family, base, model, length };
    return opened;
  }

  async function evaluate(request: EvaluateRequest): Promise<EvaluateAnswer> {
    const { suite, sampling, seeds } = request;
    const began = performance.now();
    const { base, model, length } = await open(request.model, request.family, promptRoom + sampling.maxTokens);
    const arch = base.files.architecture;
    const adapter = await openAdapter(request.policy, arch);
    const onDevice = adapter && loadGpuAdapter(gpu, arch, adapter);
    const shape = { slots: request.slots, cacheLength: length, rows: 1024 };
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
      const tasks =
        suite.kind === 'agent' ? (suite.split === 'dev' ? devTasks : finalTasks)(suite.seed, suite.episodes) : [];
      const made =
        suite.kind === 'agent'
          ? await evaluateAgent(tasks, seeds, settings, createGermanEnvironment(), ports)
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
        items: made.items,
      });
      return { evaluation, episodes: made.episodes };
    } finally {
      sampler.destroy();
      if (onDevice) releaseAdapter(gpu, onDevice.views);
    }
  }

  return { evaluate, progress: async () => status };
}

await serve(async () => {
  const gpu = await openGpu();
  return { service: createEvaluator(gpu), dispose: () => gpu.destroy() };
});
