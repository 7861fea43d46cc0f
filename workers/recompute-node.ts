// Recomputes the log-probs of a run's stored rollouts on a device, through the trainer's own pass (point 5 of the audit).
// Not the audit's rules (src/audit.ts). The weights that sampled a step are the initial adapter, a sealed one, or, with
// `replay`, what training again on the stored rollouts gives.
// Invariant: a checkpoint is opened by the seal that the journal names; equal bits are demanded where device, family and
// shaders are those of the run, and a stated bound elsewhere.
import { join } from 'node:path';
import type { AuditedRun, Recomputer } from '../src/audit-node.ts';
import { verifyCheckpoint } from '../src/checkpoint.ts';
import { requireIdentity } from '../src/checkpoint-state.ts';
import { type Gpu, type KernelFamily, openGpu } from '../src/gpu/device.ts';
import { createTrainer, type Trainer } from '../src/grpo/step.ts';
import { canonicalBytes } from '../src/lib/canonical-json.ts';
import { AuditError, DeviceError } from '../src/lib/errors.ts';
import { sha256Hex } from '../src/lib/sha256-node.ts';
import { encodeAdapter } from '../src/model/adapter-files.ts';
import { adapterLayout, loadGpuAdapter } from '../src/model/adapter-gpu.ts';
import { type BaseModel, openBase } from '../src/model/base-node.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import type { Episode } from '../src/rollout/episode.ts';
import { isTruncated } from '../src/rollout/loss-mask.ts';
import { stepInput } from '../src/train.ts';
import { decodeTrainState, encodeTrainState } from '../src/train-state.ts';
import { trainerOptions } from '../src/trainer-options.ts';
import { shaderDigests } from './run-identity.ts';
import { deviceFacts, runLength, startingAdapter, trainerShape } from './run-trainer.ts';

/**
 * Largest difference of a log-prob, in nats, that another device may show. Portable: both devices' logits are within
 * 2e-4 of the f64 model (goldens), which moves a log-prob by up to 4e-4 each. Matrix: 16-bit caches and products.
 */
export const logprobBound: Record<KernelFamily, number> = { portable: 1e-3, matrix: 5e-2 };

export interface RecomputeOptions {
  /** Words that the adapter's description must contain, in any case. */
  device?: string;
  /** Train again on the stored rollouts, so that every step's weights are at hand, not only the sealed ones. */
  replay?: boolean;
}

/** Opens the device, unless it is another one than was asked for. */
async function openNamed(name: string | undefined): Promise<Gpu> {
  const gpu = await openGpu();
  const { vendor, architecture, device, description } = gpu.identity;
  const about = [vendor, architecture, device, description].join(' ');
  if (name === undefined || about.toLowerCase().includes(name.toLowerCase())) return gpu;
  gpu.destroy();
  throw new DeviceError(
    'other-device',
    `opening a GPU for --device ${JSON.stringify(name)}: found ${about.trim()}; wanted an adapter whose description ` +
      'contains these words. Set VK_DRIVER_FILES to the driver that is meant, or leave --device out.',
  );
}

/** What differs between the run's device, program and this one, in words; empty where equal bits are promised. */
function differences({ entries }: AuditedRun, gpu: Gpu): string[] {
  const here = JSON.stringify(canonicalText(deviceFacts(gpu)));
  const found = new Set<string>();
  for (const entry of entries) {
    if (entry.kind !== 'run-start' && entry.kind !== 'resume') continue;
    if (JSON.stringify(canonicalText(entry.data.device)) !== here) found.add('another device or driver');
    if (entry.kind !== 'run-start') continue;
    const shaders = canonicalText(shaderDigests());
    if (canonicalText(entry.data.shaderDigests) !== shaders) found.add('other shaders');
  }
  return [...found];
}

const canonicalText = (value: unknown) => new TextDecoder().decode(canonicalBytes(value));

/**
 * Opens device, model and trainer for a run. @throws ModelFileError for a model that cannot be read, CheckpointError
 * `identity-mismatch` for another model than was trained on, DeviceError `other-device` or `no-adapter`.
 */
export async function openRecomputer(run: AuditedRun, options: RecomputeOptions = {}): Promise<Recomputer> {
  const { storage, config } = run;
  const base = await openBase(config.model);
  const gpu = await openNamed(options.device);
  try {
    const arch = base.files.architecture;
    const length = runLength(config, arch);
    const { family } = config.kernels;
    const { model } = await loadFamilyWeights(gpu, base.files, family, { positions: length });
    const initial = await startingAdapter(config, base);
    const trainer = createTrainer(
      gpu,
      model,
      adapterLayout(arch, initial.config),
      initial,
      trainerShape(config, length),
      trainerOptions(config, base.vocabulary),
      config.adapter === null ? null : loadGpuAdapter(gpu, arch, initial),
    );
    const differing = differences(run, gpu);
    const bound = differing.length === 0 ? 0 : logprobBound[family];
    if (options.replay && bound > 0) throw noReplay(storage.label, differing);
    const name = gpu.identity.description || gpu.identity.device;
    const demand =
      bound === 0
        ? 'the device, kernels and shaders of the run: equal bits wanted'
        : `${differing.join(' and ')}: wanted within ${bound} nats`;
    const journaled = stepDigests(run);
    /** Completed steps of the weights that the trainer holds; null if they are not the run's. */
    let held: number | null = 0;
    return {
      bound,
      basis: `log-probs recomputed on ${name} (${family}), ${demand}`,
      async logprobs(episodes, { step, adapterSha256 }) {
        if (!readable(episodes, base.vocabulary, length)) return 'a record of it is malformed, as its findings say';
        if (step !== held) {
          const lacking = await restore(run, trainer, base, step, adapterSha256);
          if (lacking !== null) return lacking;
          held = step;
        }
        if (step === 0) requireInitial(episodes, sha256Hex(encodeAdapter(initial)['adapter_model.safetensors']));
        const sequences = episodes.map((episode) => ({
          ids: episode.ids,
          mask: episode.mask,
          sampled: episode.logprobs,
          advantage: 0,
          truncated: isTruncated(episode),
        }));
        return (await trainer.score(sequences)).map(({ logprobs }) => logprobs);
      },
      ...(options.replay
        ? {
            async advance(step, episodes) {
              if (held !== step - 1) return null;
              const whole = episodes.length === config.grpo.groupSize * config.grpo.groupsPerStep;
              if (!whole || !readable(episodes, base.vocabulary, length)) {
                held = null;
                return null;
              }
              await trainer.step(stepInput(config, episodes, step).input);
              const files = encodeTrainState(await trainer.state(), initial.config, initial.baseModel);
              const adapterSha256 = sha256Hex(files['adapter_model.safetensors']);
              held = adapterSha256 === journaled.get(step) ? step : null;
              return { adapterSha256, optimizerSha256: sha256Hex(files['optimizer.safetensors']) };
            },
          }
        : {}),
      close() {
        trainer.destroy();
        gpu.destroy();
      },
    };
  } catch (error) {
    gpu.destroy();
    throw error;
  }

  function requireInitial(episodes: readonly { policy: string }[], sha256: string): void {
    const other = episodes.find(({ policy }) => policy !== sha256);
    if (!other) return;
    throw new AuditError(
      'other-weights',
      `recomputing step 1 of ${storage.label}: found rollouts of adapter ${other.policy}; wanted ${sha256}, the one ` +
        'that the configuration starts from. Restore run-config.json and the adapter that it names.',
    );
  }
}

/** Whether a pass can run over the episodes at all; what is wrong with one of them is a finding of the audit's rules. */
function readable(episodes: readonly Episode[], vocabulary: number, length: number): boolean {
  return episodes.every(
    ({ ids, mask, logprobs }) =>
      ids.length > 1 &&
      ids.length <= length + 1 &&
      mask.length === ids.length &&
      logprobs.length === ids.length &&
      mask[0] === 0 &&
      ids.every((id) => id < vocabulary),
  );
}

const stepDigests = ({ entries }: AuditedRun) =>
  new Map(entries.flatMap((e) => (e.kind === 'step' ? [[e.data.step, e.data.adapterSha256] as const] : [])));

function noReplay(label: string, differing: readonly string[]): DeviceError {
  return new DeviceError(
    'no-replay',
    `replaying ${label}: found ${differing.join(' and ')}; wanted those of the run, as only they give its bits. ` +
      'Replay on the device that the run used, or leave --replay out.',
  );
}

/** Puts the sealed weights after `step` into the trainer; returns why they are not there, or null. */
async function restore(
  { storage, entries }: AuditedRun,
  trainer: Trainer,
  base: BaseModel,
  step: number,
  adapterSha256: string | null,
): Promise<string | null> {
  const entry = entries.findLast((e) => e.kind === 'checkpoint' && e.data.step === step);
  if (entry?.kind !== 'checkpoint') return 'the weights that sampled it were not sealed';
  const { folder, sealSha256 } = entry.data;
  if (!(await storage.exists(folder))) return 'the checkpoint of the weights that sampled it was removed since';
  const { files, state } = await verifyCheckpoint(storage, folder, sealSha256);
  requireIdentity(`${storage.label}/${folder}`, state.identity, { ...state.identity, ...base.hashes });
  const found = sha256Hex(files['adapter_model.safetensors']);
  if (adapterSha256 !== null && found !== adapterSha256) {
    throw new AuditError(
      'other-weights',
      `recomputing step ${step + 1} of ${storage.label}: found an adapter with SHA-256 ${found} in ` +
        `${join(folder, 'adapter_model.safetensors')}; wanted ${adapterSha256}, as the journal says of step ${step}. ` +
        'Restore the run from a copy: its journal and its checkpoints are not of one run.',
    );
  }
  trainer.restore(await decodeTrainState(files, base.files.architecture, folder));
  return null;
}
