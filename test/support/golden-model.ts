// Builds f64 reference models and adapters from the golden checkpoints, and tiny random ones for finite differences.
// Not the product's loading path: the tensors are read by the golden reader.
// Invariant: everything is a function of the file or of the seed.
import { type Architecture, parseArchitecture } from '../../src/model/config.ts';
import { adapterTensorNames, type LoraConfig } from '../../src/model/lora.ts';
import {
  type ReferenceAdapter,
  type ReferenceModel,
  referenceAdapter,
  referenceModel,
} from '../../src/model/reference/weights.ts';
import { expectedTensors, linearNames } from '../../src/model/tensor-names.ts';
import { type GoldenFile, readGolden, readGoldenJson } from './golden.ts';

/** The f64 reference of a checkpoint folder of test/golden. */
export function goldenModel(folder: string): ReferenceModel {
  const architecture = parseArchitecture(readGoldenJson(`${folder}/config.json`), null, folder);
  const { tensors } = readGolden(`${folder}/model.safetensors`);
  return referenceModel(architecture, new Map([...tensors].map(([name, { data }]) => [name, data])));
}

/** The configuration of every golden adapter: rank 4, alpha 8, all linear layers. */
export const goldenLora: LoraConfig = { rank: 4, alpha: 8, useRslora: false, targets: [...linearNames] };

/** Tensors `<prefix>model.layers.N.<module>.lora_{A,B}.weight`, keyed by short name `layers.N.<module>.lora_A`. */
export function loraTensors(file: GoldenFile, prefix: string): Map<string, Float64Array> {
  const start = `${prefix}model.`;
  const found = [...file.tensors].filter(([name]) => name.startsWith(start) && name.endsWith('.weight'));
  return new Map(found.map(([name, { data }]) => [name.slice(start.length, -'.weight'.length), data]));
}

/** The golden PEFT adapter. */
export function goldenAdapter(model: ReferenceModel): ReferenceAdapter {
  const file = readGolden('tiny-qwen3-tied-lora/adapter_model.safetensors');
  return referenceAdapter(model.architecture, { config: goldenLora, tensors: loraTensors(file, 'base_model.model.') });
}

/** Seeded numbers in [-1, 1): a 32-bit linear congruential generator, top 24 bits. */
export function seededNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state >>> 8) / 2 ** 23 - 1;
  };
}

/** A random model whose weights are large enough for every path to matter, and a random adapter for all layers. */
export function randomModel(
  architecture: Architecture,
  seed: number,
): { model: ReferenceModel; adapter: ReferenceAdapter } {
  const next = seededNumbers(seed);
  const fill = (shape: readonly number[], scale: number, offset = 0) =>
    Float64Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => offset + scale * next());
  const tensors = new Map<string, Float64Array>();
  for (const [name, shape] of expectedTensors(architecture))
    tensors.set(name, name.includes('norm') ? fill(shape, 0.3, 1) : fill(shape, 1 / Math.sqrt(shape[1]! / 4)));
  const config: LoraConfig = { rank: 2, alpha: 3, useRslora: false, targets: [...linearNames] };
  const names = adapterTensorNames(architecture, config);
  const lora = new Map(names.map(({ name, shape }) => [name, fill(shape, 0.4)]));
  return {
    model: referenceModel(architecture, tensors),
    adapter: referenceAdapter(architecture, { config, tensors: lora }),
  };
}
