// LoRA parameters: which layers are adapted, their names, shapes and order, the scale, and the initial values.
// Not files (adapter-files.ts) and not a forward pass. Per adapted layer y = W x + s * B (A x), A [r, in], B [out, r].
// Invariant: everywhere the parameters are listed, they come in PEFT's order: by layer, q k v o gate up down, A before
// B.
import { ModelFileError } from '../lib/errors.ts';
import { nearestName } from '../lib/nearest.ts';
import { philox4x32 } from '../lib/rng.ts';
import type { Architecture } from './config.ts';
import { showValue } from './file-fault.ts';
import { type LinearName, linearNames, linearPath, linearShape } from './tensor-names.ts';

export type LoraTarget = LinearName;

export interface LoraConfig {
  rank: number;
  alpha: number;
  /** Scale alpha / sqrt(rank) instead of alpha / rank. */
  useRslora: boolean;
  /** In PEFT's order, each once. */
  targets: LoraTarget[];
}

/** One parameter tensor; `name` is like `layers.0.self_attn.q_proj.lora_A`. */
export interface AdapterTensor {
  name: string;
  layer: number;
  target: LoraTarget;
  part: 'A' | 'B';
  /** A: [rank, in]; B: [out, rank]. */
  shape: [number, number];
}

/** An adapter in memory. The master artefact is f32, whatever the base model's dtype is. */
export interface Adapter {
  config: LoraConfig;
  /** Name or path of the base model, for adapter_config.json; empty if unknown. */
  baseModel: string;
  /** By `AdapterTensor.name`, in PEFT's order, row-major. */
  tensors: Map<string, Float32Array>;
}

// Second key word of adapter initialisation: 'Lora' in ASCII. Keeps its numbers apart from every other use of a seed.
const INIT_KEY_TAG = 0x4c6f7261;

/**
 * The targets of `all-linear` (every linear layer but the output head, as PEFT resolves it) or of a list, in PEFT's
 * order. Throws ModelFileError for an unknown or repeated name; `doing` starts its message.
 */
export function resolveTargets(spec: 'all-linear' | readonly string[], doing = 'resolving LoRA targets'): LoraTarget[] {
  if (spec === 'all-linear') return [...linearNames];
  const wanted = `all-linear or some of ${linearNames.join(', ')}`;
  const fail = (code: string, found: string, remedy: string) =>
    new ModelFileError(code, `${doing}: found ${found}; wanted ${wanted}. ${remedy}`);
  if (spec.length === 0) throw fail('no-target', 'an empty list', 'Name at least one target.');
  for (const [i, name] of spec.entries()) {
    if (name === 'lm_head' || name === 'embed_tokens') {
      const remedy = 'Leave it out: on a tied model it would put base weights into the adapter file.';
      throw fail('unknown-target', `target ${name}, which is not adapted`, remedy);
    }
    if (!(linearNames as readonly string[]).includes(name)) {
      const near = nearestName(name, linearNames);
      throw fail(
        'unknown-target',
        `target ${showValue(name)}`,
        near ? `Did you mean ${near}?` : 'Rename or remove it.',
      );
    }
    if (spec.indexOf(name) !== i) throw fail('duplicate-target', `target ${name} twice`, 'Name each target once.');
  }
  return linearNames.filter((name) => spec.includes(name));
}

/** The factor s of the update: alpha / rank, or alpha / sqrt(rank) with rank stabilisation. f64. */
export function loraScale(config: LoraConfig): number {
  return config.alpha / (config.useRslora ? Math.sqrt(config.rank) : config.rank);
}

/** Throws ModelFileError unless rank and alpha are usable; alpha 0 would make the adapter do nothing. */
export function checkLoraConfig(config: LoraConfig, doing: string): void {
  const fail = (found: string, wanted: string) =>
    new ModelFileError('bad-lora-config', `${doing}: found ${found}; wanted ${wanted}. Correct the configuration.`);
  if (!(Number.isSafeInteger(config.rank) && config.rank > 0)) throw fail(`rank ${config.rank}`, 'a positive integer');
  if (!(Number.isFinite(config.alpha) && config.alpha > 0)) {
    throw fail(`lora_alpha ${config.alpha}`, 'a positive number, for the update is scaled by it');
  }
  resolveTargets(config.targets, doing);
}

/** Every parameter tensor of an adapter, in PEFT's parameter order. */
export function adapterTensorNames(arch: Architecture, config: LoraConfig): AdapterTensor[] {
  const list: AdapterTensor[] = [];
  for (let layer = 0; layer < arch.layers; layer++) {
    for (const target of linearNames) {
      if (!config.targets.includes(target)) continue;
      const { outFeatures, inFeatures } = linearShape(arch, target);
      const stem = `layers.${layer}.${linearPath(target)}.lora_`;
      list.push({ name: `${stem}A`, layer, target, part: 'A', shape: [config.rank, inFeatures] });
      list.push({ name: `${stem}B`, layer, target, part: 'B', shape: [outFeatures, config.rank] });
    }
  }
  return list;
}

/** Trainable numbers in all. */
export function parameterCount(arch: Architecture, config: LoraConfig): number {
  return adapterTensorNames(arch, config).reduce((sum, { shape }) => sum + shape[0] * shape[1], 0);
}

/**
 * A fresh adapter: A uniform in (-1/sqrt(in), 1/sqrt(in)), which is PEFT's kaiming_uniform with a = sqrt(5); B zero.
 * Philox with key [seed, 'Lora'] and counter [block, tensor, 0, seed / 2^32]; `tensor` counts layer * 7 + place of the
 * target in PEFT's order, so a layer's values do not depend on which other targets are adapted.
 */
export function initAdapter(arch: Architecture, config: LoraConfig, seed: number, baseModel = ''): Adapter {
  checkLoraConfig(config, 'making a LoRA adapter');
  if (!Number.isSafeInteger(seed) || seed < 0) {
    const found = `seed ${seed}; wanted an integer from 0 to 2^53 - 1`;
    throw new ModelFileError('bad-seed', `making a LoRA adapter: found ${found}. Choose another seed.`);
  }
  const tensors = new Map<string, Float32Array>();
  for (const { name, layer, target, part, shape } of adapterTensorNames(arch, config)) {
    const values = new Float32Array(shape[0] * shape[1]);
    const index = layer * linearNames.length + linearNames.indexOf(target);
    if (part === 'A') fillUniform(values, 1 / Math.sqrt(shape[1]), index, seed);
    tensors.set(name, values);
  }
  return { config: { ...config, targets: [...config.targets] }, baseModel, tensors };
}

function fillUniform(values: Float32Array, bound: number, tensorIndex: number, seed: number): void {
  const high = Math.floor(seed / 2 ** 32);
  for (let i = 0; i < values.length; i += 4) {
    const words = philox4x32([i / 4, tensorIndex, 0, high], [seed >>> 0, INIT_KEY_TAG]);
    for (let j = 0; j < 4 && i + j < values.length; j++) {
      // The middle of each of 2^32 equal cells: symmetric about zero, never an end point.
      values[i + j] = bound * ((words[j]! + 0.5) * 2 ** -31 - 1);
    }
  }
}
