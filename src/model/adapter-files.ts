// PEFT adapter folders: adapter_config.json and adapter_model.safetensors, in and out.
// Not a merge. Invariant: loading is strict (every key consumed, every target filled, every shape right), so an adapter
// that matches nothing can never pass for the base model; what is saved is f32 and loads in PEFT unchanged.
import { sha256HexAsync } from '../lib/sha256.ts';
import { ADAPTER_CONFIG, formatAdapterConfig, parseAdapterConfig } from './adapter-config.ts';
import { CANARY_FILE, type Canary, type CanarySubject, parseCanary } from './canary.ts';

import type { Architecture } from './config.ts';
import { fileFault, sampleNames, showValue } from './file-fault.ts';
import type { FileSource } from './file-source.ts';
import { readJson } from './json-file.ts';
import { type Adapter, type AdapterTensor, adapterTensorNames, type LoraConfig } from './lora.ts';
import { openSafetensors, readF32, type TensorRef } from './safetensors.ts';
import { bytesOf, encodeSafetensors, type FileTensors } from './safetensors-write.ts';
import { linearPath, linearShape } from './tensor-names.ts';

const WEIGHTS = 'adapter_model.safetensors';

/** An adapter with what loading it deserves to say, as sentences, and what its logits are compared with. */
export interface LoadedAdapter extends Adapter, CanarySubject {
  notes: string[];
}

/** The key of a parameter in PEFT's file. */
export function peftKey(name: string): string {
  return `base_model.model.model.${name}.weight`;
}

/**
 * Loads a PEFT LoRA adapter for a model of this architecture. Keys with PEFT's adapter name `.default.` are mapped and
 * noted; any other difference, and any field of the configuration that is not implemented, throws ModelFileError. So does
 * a canary.json (see canary.ts) that was made of another adapter.
 */
export async function loadAdapter(source: FileSource, arch: Architecture): Promise<LoadedAdapter> {
  const configPath = `${source.label}/${ADAPTER_CONFIG}`;
  const { config, baseModel, notes } = parseAdapterConfig(await readJson(source, ADAPTER_CONFIG), configPath);
  const file = await openSafetensors(source, WEIGHTS);
  const found = mapKeys(file.tensors, source.label, notes);
  const expected = adapterTensorNames(arch, config);
  checkKeys(expected, found, source.label);
  const tensors = new Map<string, Float32Array>();
  const otherDtypes = new Set<string>();
  for (const { name, shape } of expected) {
    const ref = found.get(name)!;
    if (ref.shape.length !== 2 || ref.shape[0] !== shape[0] || ref.shape[1] !== shape[1]) {
      throw fileFault('wrong-shape', {
        doing: `checking ${source.label}/${WEIGHTS}, tensor ${ref.name}`,
        found: `shape ${showValue(ref.shape)}`,
        wanted: `${showValue(shape)} (r = ${config.rank} in ${ADAPTER_CONFIG})`,
        remedy: `Check that ${ADAPTER_CONFIG} and the base model belong to this adapter.`,
      });
    }
    if (ref.dtype !== 'F32') otherDtypes.add(ref.dtype);
    const values = await readF32(source, ref);
    checkFinite(values, `reading ${source.label}/${WEIGHTS}, tensor ${ref.name}`);
    tensors.set(name, values);
  }
  for (const dtype of [...otherDtypes].sort())
    notes.push(`${source.label}/${WEIGHTS} has ${dtype} tensors, widened to f32`);
  const zero = expected.every(({ name, part }) => part === 'A' || tensors.get(name)!.every((value) => value === 0));
  if (zero) notes.push(`every lora_B of ${source.label} is zero: the adapter changes nothing yet`);
  const canary = await readCanary(source);
  const sealed = canary !== null || (await source.size('seal.json')) !== null;
  return { config, baseModel, tensors, notes, label: source.label, canary, sealed, zero };
}

/** The canary beside an adapter, or null. Throws ModelFileError `other-canary` for one of other weights. */
async function readCanary(source: FileSource): Promise<Canary | null> {
  const size = await source.size(CANARY_FILE);
  if (size === null) return null;
  const path = `${source.label}/${CANARY_FILE}`;
  const canary = parseCanary(await source.read(CANARY_FILE, 0, size), path);
  const weights = await source.read(WEIGHTS, 0, (await source.size(WEIGHTS))!);
  const found = await sha256HexAsync(weights);
  if (found === canary.adapterSha256) return canary;
  throw fileFault('other-canary', {
    doing: `matching ${path} with ${WEIGHTS}`,
    found: `an adapter with SHA-256 ${found}`,
    wanted: `${canary.adapterSha256}, of which the canary was made`,
    remedy: 'One of the two files is from elsewhere: restore both from the checkpoint, or remove canary.json.',
  });
}

/** Short names of the tensors of a file; keys that are no LoRA parameter keep their whole name, to be refused. */
function mapKeys(refs: ReadonlyMap<string, TensorRef>, label: string, notes: string[]): Map<string, TensorRef> {
  const pattern = /^base_model\.model\.model\.(layers\.\d+\.(?:self_attn|mlp)\.\w+\.lora_[AB])(\.default)?\.weight$/;
  const found = new Map<string, TensorRef>();
  let mapped = 0;
  for (const [key, ref] of refs) {
    const match = pattern.exec(key);
    const name = match?.[1] ?? key;
    if (found.has(name)) {
      throw fileFault('duplicate-tensor', {
        doing: `reading ${label}/${WEIGHTS}`,
        found: `${found.get(name)!.name} and ${key}`,
        wanted: 'each parameter once',
        remedy: 'Save the adapter again with PEFT.',
      });
    }
    if (match?.[2]) mapped += 1;
    found.set(name, ref);
  }
  if (mapped > 0) notes.push(`${mapped} keys of ${label}/${WEIGHTS} carry the adapter name "default"; it was dropped`);
  return found;
}

function checkKeys(expected: readonly AdapterTensor[], found: ReadonlyMap<string, TensorRef>, label: string): void {
  const names = new Set(expected.map(({ name }) => name));
  const missing = [...names].filter((name) => !found.has(name));
  const extra = [...found].filter(([name]) => !names.has(name)).map(([, ref]) => ref.name);
  if (missing.length === 0 && extra.length === 0) return;
  const parts = [];
  if (extra.length > 0) parts.push(`${extra.length} keys that belong to nothing (${sampleNames(extra)})`);
  if (missing.length > 0) parts.push(`${missing.length} parameters without a key`);
  throw fileFault(missing.length > 0 ? 'missing-tensor' : 'extra-tensor', {
    doing: `matching ${label}/${WEIGHTS} with the base model`,
    found: parts.join(' and '),
    wanted: `${names.size} keys (${sampleNames((missing.length > 0 ? missing : [...names]).map(peftKey))})`,
    remedy: 'Check that the adapter was trained on this base model, and that its keys are in PEFT form.',
  });
}

function checkFinite(values: Float32Array, doing: string): void {
  // Its callback would cost findIndex a tenth of a second for the adapter of a 1.7B model.
  let at = 0;
  while (at < values.length && Number.isFinite(values[at])) at += 1;
  if (at === values.length) return;
  throw fileFault('not-finite', {
    doing,
    found: `${values[at]} at element ${at}`,
    wanted: 'finite numbers',
    remedy: 'The run that made it diverged; go back to an earlier checkpoint.',
  });
}

/**
 * The two files of an adapter folder, as PEFT writes them: f32 tensors, metadata {"format": "pt"}. Throws
 * ModelFileError for lora_alpha 0, a missing tensor, a wrong length or a value that is not finite. Deterministic.
 */
export function encodeAdapter(
  adapter: Adapter,
): Record<'adapter_model.safetensors' | 'adapter_config.json', Uint8Array> {
  const text = formatAdapterConfig(adapter.config, adapter.baseModel);
  const { tensors, metadata } = adapterTensors(adapter);
  return {
    'adapter_model.safetensors': encodeSafetensors(tensors, metadata),
    'adapter_config.json': new TextEncoder().encode(text),
  };
}

/** What adapter_model.safetensors is made of. Throws as `encodeAdapter` does. */
export function adapterTensors(adapter: Pick<Adapter, 'config' | 'tensors'>): FileTensors {
  const tensors = [...adapter.tensors].map(([name, values]) => {
    checkFinite(values, `writing ${WEIGHTS}, tensor ${name}`);
    return {
      name: peftKey(name),
      dtype: 'F32' as const,
      shape: shapeOf(adapter.config, name, values),
      bytes: bytesOf(values),
    };
  });
  return { tensors, metadata: { format: 'pt' } };
}

function shapeOf(config: LoraConfig, name: string, values: Float32Array): [number, number] {
  const other = values.length / config.rank;
  const isTarget = config.targets.some((target) => name.includes(`.${linearPath(target)}.lora_`));
  if (!isTarget || !Number.isInteger(other)) {
    throw fileFault('bad-tensor', {
      doing: `writing ${WEIGHTS}, tensor ${name}`,
      found: `${values.length} values with rank ${config.rank} and targets ${config.targets.join(', ')}`,
      wanted: 'a parameter of a target, with whole rows',
      remedy: 'This is a fault of the caller; report it.',
    });
  }
  return name.endsWith('.lora_A') ? [config.rank, other] : [other, config.rank];
}

/** Throws unless an adapter in memory has exactly the tensors of its configuration, each of the right length. */
export function checkAdapter(adapter: Adapter, arch: Architecture): void {
  const expected = adapterTensorNames(arch, adapter.config);
  const wrong = expected.find(({ name, shape }) => adapter.tensors.get(name)?.length !== shape[0] * shape[1]);
  if (!wrong && adapter.tensors.size === expected.length) return;
  const { outFeatures, inFeatures } = linearShape(arch, (wrong ?? expected[0]!).target);
  throw fileFault('bad-adapter', {
    doing: 'checking an adapter against its base model',
    found: wrong
      ? `${adapter.tensors.get(wrong.name)?.length ?? 'no'} values in ${wrong.name}`
      : `${adapter.tensors.size} tensors`,
    wanted: wrong ? `[${wrong.shape}] for a layer of ${inFeatures} -> ${outFeatures}` : `${expected.length}`,
    remedy: 'Load the adapter that was trained on this base model.',
  });
}
