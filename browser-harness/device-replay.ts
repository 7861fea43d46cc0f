// Scores a recorded rollout on this device: the log-prob of each sampled token under the weights that sampled it.
// Not a new rollout: the ids are given. Invariant: the weights are told by their hash, or the result says that they are
// others.
import type { Gpu } from '../src/gpu/device.ts';
import { AuditError } from '../src/lib/errors.ts';
import { sha256HexAsync } from '../src/lib/sha256.ts';
import { encodeAdapter, loadAdapter } from '../src/model/adapter-files.ts';
import { memorySource } from '../src/model/file-source.ts';
import { type Adapter, initAdapter, resolveTargets } from '../src/model/lora.ts';
import { isTruncated } from '../src/rollout/loss-mask.ts';
import { type RunConfig, runConfigSchema } from '../src/run-config.ts';
import { loraOf } from '../src/trainer-options.ts';
import type { ReplayRequest, ReplayResult } from './device-api.ts';
import type { DeviceModel } from './device-model.ts';
import { trainerOf } from './device-train.ts';

interface Weights {
  label: string;
  /** Null scores with the base model. */
  adapter: Adapter | null;
  exact: boolean;
}

async function weightsOf(model: DeviceModel, request: ReplayRequest, config: RunConfig | null): Promise<Weights> {
  const { episode, adapters, baseInstead, chosen } = request;
  const arch = model.files.architecture;
  if (chosen !== null) {
    const [label, adapterConfig, weights] = adapters.find(([name]) => name === chosen)!;
    const files = { 'adapter_config.json': adapterConfig, 'adapter_model.safetensors': weights };
    const exact = (await sha256HexAsync(weights)) === episode.policy;
    return { label, adapter: await loadAdapter(memorySource(label, files), arch), exact };
  }
  if (episode.policy === 'base') return { label: 'the base model', adapter: null, exact: true };
  for (const [label, adapterConfig, weights] of adapters) {
    if ((await sha256HexAsync(weights)) !== episode.policy) continue;
    const files = { 'adapter_config.json': adapterConfig, 'adapter_model.safetensors': weights };
    return { label, adapter: await loadAdapter(memorySource(label, files), arch), exact: true };
  }
  if (config && config.adapter === null) {
    const adapter = initAdapter(arch, loraOf(config), config.seed, config.model);
    const bytes = encodeAdapter(adapter)['adapter_model.safetensors'];
    if ((await sha256HexAsync(bytes)) === episode.policy)
      return { label: 'the untrained adapter', adapter, exact: true };
  }
  if (baseInstead) return { label: 'the base model instead of the recorded adapter', adapter: null, exact: false };
  throw new AuditError(
    'no-weights',
    `replaying a rollout of policy ${episode.policy.slice(0, 12)}…: ` +
      `found ${adapters.length} sealed adapters, none with that hash; ` +
      'wanted the weights that sampled it. Choose a rollout made right after a checkpoint, or allow the base model.',
  );
}

/** Log-probs and entropies by token, null where none was sampled. */
export async function runReplay(gpu: Gpu, model: DeviceModel, request: ReplayRequest): Promise<ReplayResult> {
  const { episode } = request;
  const beyond = episode.ids.find((id) => id >= model.text.vocabularySize);
  if (beyond !== undefined || episode.ids.length > model.length) {
    const found =
      beyond !== undefined
        ? `id ${beyond}, past its vocabulary`
        : `${episode.ids.length} tokens, past its ${model.length} positions`;
    throw new AuditError(
      'other-model',
      `replaying with ${model.label}: found ${found}; wanted the model that sampled it. Load that model.`,
    );
  }
  const parsed = runConfigSchema.safeParse(request.config);
  const fallback = runConfigSchema.parse({ model: model.label, output: 'replay', lora: { rank: 4, alpha: 4 } });
  const known = parsed.success ? parsed.data : null;
  const weights = await weightsOf(model, request, known);
  const config = { ...fallback, generation: { ...fallback.generation, temperature: episode.temperature } };
  const none = (): Adapter =>
    initAdapter(
      model.files.architecture,
      { rank: 4, alpha: 4, useRslora: false, targets: resolveTargets('all-linear') },
      0,
    );
  const length = episode.ids.length;
  const trainer = trainerOf(gpu, model, weights.adapter ?? none(), config, { rows: length, sequences: 1, length });
  try {
    const sequence = {
      ids: episode.ids,
      mask: episode.mask,
      sampled: episode.logprobs,
      advantage: 0,
      truncated: isTruncated(episode),
    };
    const [scored] = await trainer.score([sequence], weights.adapter !== null);
    const logprobs: (number | null)[] = episode.ids.map(() => null);
    const entropies = [...logprobs];
    const trained = episode.mask.flatMap((bit, i) => (bit === 1 ? [i] : []));
    for (const [n, i] of trained.entries()) {
      logprobs[i] = scored!.logprobs[n]!;
      entropies[i] = scored!.entropies[n]!;
    }
    return { policy: weights.label, exact: weights.exact, logprobs, entropies };
  } finally {
    trainer.destroy();
  }
}
