// A training run in the device worker: src/train.ts with the page's ports: memory, the in-process environment, the
// audit. Not workers/train-node.ts, and nothing is sealed: the run is gone with the page. Invariant: the same loop,
// kernels and audit as in Node; equal requests give equal digests on one device.

import { findingText } from '../src/audit/findings.ts';
import { auditStep, compareLogprobs } from '../src/audit.ts';
import { createGermanEnvironment } from '../src/environments/german-environment.ts';
import { INVALID_CALL_OBSERVATION } from '../src/environments/german-expert.ts';
import { trainTasks } from '../src/environments/german-task.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { createTrainer, type Trainer } from '../src/grpo/step.ts';
import { auditContexts } from '../src/inspect/audit-view.ts';
import { openJournal } from '../src/journal.ts';
import { sha256HexAsync } from '../src/lib/sha256.ts';
import { adapterLayout } from '../src/model/adapter-gpu.ts';
import { type Adapter, initAdapter } from '../src/model/lora.ts';
import { shaderDigests } from '../src/qualification.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { type RunConfig, resolveRunConfig } from '../src/run-config.ts';
import { train } from '../src/train.ts';
import { encodeTrainState } from '../src/train-state.ts';
import { loraOf, trainerOptions } from '../src/trainer-options.ts';
import type { TrainRequest, TrainResult } from './device-api.ts';
import type { DeviceModel } from './device-model.ts';
import { memoryStorage } from './memory-storage.ts';

/** A trainer with the options of a configuration. */
export function trainerOf(
  gpu: Gpu,
  model: DeviceModel,
  adapter: Adapter,
  config: RunConfig,
  shape: { rows: number; sequences: number; length: number },
): Trainer {
  const layout = adapterLayout(model.files.architecture, adapter.config);
  return createTrainer(gpu, model.gpuModel, layout, adapter, shape, trainerOptions(config, model.text.vocabularySize));
}

const promptRoom = 320;

/** Trains for some steps from a new adapter. `onFile` sees the run's files as they grow. */
export async function runTraining(
  gpu: Gpu,
  model: DeviceModel,
  request: TrainRequest,
  onFile: (name: string, bytes: Uint8Array) => void,
  onRollout: (step: number, done: number, all: number) => void,
): Promise<TrainResult> {
  const began = performance.now();
  const { steps, groupSize, learningRate, maxTokens, seed } = request;
  const asked = {
    model: model.label,
    output: 'in the page',
    seed,
    steps,
    data: { seeds: { train: seed }, count: Math.max(16, steps) },
    generation: { maxCompletionTokens: maxTokens },
    grpo: { groupSize },
    optimizer: { learningRate },
    lora: { rank: 8, alpha: 16 },
  };
  const { config, sha256 } = await resolveRunConfig(JSON.stringify(asked), 'the form');
  const storage = memoryStorage(onFile);
  await storage.write('run-config.json', new TextEncoder().encode(JSON.stringify(config)));
  const { journal } = await openJournal(storage, 'journal.jsonl', () => new Date().toISOString());
  const { vendor, architecture, device, description, dawn } = gpu.identity;
  await journal.append({
    kind: 'run-start',
    data: {
      runId: sha256.slice(0, 16),
      planSha256: sha256,
      device: { vendor, architecture, device, description, dawn },
      kernelFamily: 'portable',
      versions: {},
      shaderDigests: await shaderDigests(),
    },
  });
  const arch = model.files.architecture;
  const adapter = initAdapter(arch, loraOf(config), config.seed, model.label);
  const length = Math.min(model.length, promptRoom + maxTokens);
  const trainer = trainerOf(gpu, model, adapter, config, { rows: groupSize * length, sequences: groupSize, length });
  const shape = { slots: groupSize * config.grpo.groupsPerStep, cacheLength: length, rows: 512 };
  const layout = adapterLayout(arch, adapter.config);
  const sampler = createSampler(gpu, model.gpuModel, shape, config.generation, model.text.vocabularySize, layout);
  const contextOf = auditContexts(config, model.text);
  async function digests() {
    const files = encodeTrainState(await trainer.state(), adapter.config, adapter.baseModel);
    return {
      adapter: await sha256HexAsync(files['adapter_model.safetensors']),
      optimizer: await sha256HexAsync(files['optimizer.safetensors']),
    };
  }
  try {
    await train(
      config,
      {
        storage,
        journal,
        trainer,
        sampler,
        text: model.text,
        environment: createGermanEnvironment(),
        tasks: trainTasks(config.data.seeds.train, config.data.count),
        invalidCallObservation: INVALID_CALL_OBSERVATION,
        auditRollouts: async (episodes) => auditStep(episodes, contextOf),
        auditLogprobs: (episodes, recomputed) =>
          episodes.flatMap((episode, i) =>
            compareLogprobs(episode, recomputed[i]!).map((finding) => findingText(episode, finding)),
          ),
        digests,
        seal: async () => {},
        now: () => performance.now(),
        shouldStop: () => false,
        onRollout,
      },
      { step: 0, cursor: { epoch: 0, index: 0 } },
    );
    const { adapter: adapterSha256 } = await digests();
    const seconds = (performance.now() - began) / 1000;
    const reason = '';
    await journal.append({
      kind: 'run-end',
      data: { status: 'finished', step: steps, adapterSha256, reason, seconds },
    });
    return { steps, adapterSha256, seconds };
  } finally {
    sampler.destroy();
    trainer.destroy();
  }
}
