// Measures the logit canary on a device: when a checkpoint is sealed, and again after its adapter was loaded.
// Not the comparison (canary.ts). Invariant: the adapter that is measured is the one on the device, in the buffers that
// sampling reads, so what is shown holds for what is sampled.
import type { Gpu, KernelFamily } from '../gpu/device.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import type { GpuAdapter } from './adapter-gpu.ts';
import {
  CANARY_FILE,
  type Canary,
  type CanarySetting,
  type CanarySubject,
  type CanaryValues,
  canarySequences,
  compareCanary,
  compareWithoutCanary,
} from './canary.ts';
import { fileFault } from './file-fault.ts';
import { probeLogits } from './probe.ts';
import { bytesOf } from './safetensors-write.ts';
import type { GpuModel } from './weights.ts';

/** What equal bits are bound to: this device, the family, and the shaders (SHA-256 over their digests). */
export function canarySettingOf(gpu: Gpu, kernelFamily: KernelFamily, shadersSha256: string): CanarySetting {
  const { vendor, architecture, device, description, dawn } = gpu.identity;
  return { kernelFamily, device: { vendor, architecture, device, description, dawn }, shadersSha256 };
}

/** The canary's values under one policy, by sequence. */
export async function measureCanary(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter | null,
  sequences: readonly (readonly number[])[],
  vocabulary: number,
): Promise<CanaryValues[]> {
  const all = sequences.map(({ length }) => new Float32Array(length * vocabulary));
  const logits: number[][] = sequences.map(() => []);
  await probeLogits(gpu, model, adapter, sequences, vocabulary, (s, position, row) => {
    const ids = sequences[s]!;
    all[s]!.set(row, position * vocabulary);
    const largest = row.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
    logits[s]!.push(largest, row[ids[(position + 1) % ids.length]!]!);
  });
  const hashes = await Promise.all(all.map((values) => sha256HexAsync(bytesOf(values))));
  return logits.map((values, s) => ({ sha256: hashes[s]!, logits: values }));
}

/** Makes the canary of an adapter that is on the device. `adapterSha256` is of its adapter_model.safetensors. */
export async function makeCanary(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter,
  vocabulary: number,
  adapterSha256: string,
  setting: CanarySetting,
): Promise<Canary> {
  const sequences = canarySequences(vocabulary);
  const base = await measureCanary(gpu, model, null, sequences, vocabulary);
  const adapted = await measureCanary(gpu, model, adapter, sequences, vocabulary);
  return {
    schema: 'shaderl.canary/1',
    adapterSha256,
    vocabulary,
    ...setting,
    sequences: sequences.map((ids, i) => ({ ids, base: base[i]!, adapter: adapted[i]! })),
  };
}

/**
 * Checks an adapter on the device against the canary that it was sealed with, or, without one, that it has an effect.
 * Returns a sentence to show. @throws ModelFileError as compareCanary and compareWithoutCanary.
 */
export async function checkLoadedAdapter(
  gpu: Gpu,
  model: GpuModel,
  subject: CanarySubject,
  adapter: GpuAdapter,
  vocabulary: number,
  setting: CanarySetting,
): Promise<string> {
  const { label, canary, sealed, zero } = subject;
  if (canary && canary.vocabulary !== vocabulary) throw otherVocabulary(label, canary.vocabulary, vocabulary);
  const sequences = canary ? canary.sequences.map(({ ids }) => ids) : canarySequences(vocabulary);
  const found = {
    base: await measureCanary(gpu, model, null, sequences, vocabulary),
    adapter: await measureCanary(gpu, model, adapter, sequences, vocabulary),
  };
  return canary
    ? compareCanary(canary, `${label}/${CANARY_FILE}`, setting, found)
    : compareWithoutCanary(label, sealed, zero, found);
}

function otherVocabulary(label: string, wanted: number, found: number) {
  return fileFault('other-base', {
    doing: `checking the loaded adapter against ${label}/${CANARY_FILE}`,
    found: `a base model with ${found} token ids`,
    wanted: `${wanted}, as when it was sealed`,
    remedy: 'The adapter was trained on another base model or tokenizer; give --model that one.',
  });
}
