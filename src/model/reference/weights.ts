// The f64 reference model's parameters: base weights by role, and a LoRA adapter by short name.
// Not a GPU upload: everything is a Float64Array on the host, eight bytes a parameter, meant for small models.
// Invariant: every matrix is row-major [out, in] and has exactly the length that the architecture demands.
import { ModelFileError } from '../../lib/errors.ts';
import type { Architecture } from '../config.ts';
import { type Adapter, adapterTensorNames, type LoraConfig, loraScale } from '../lora.ts';
import type { ModelFiles } from '../model-files.ts';
import { ropeInverseFrequencies } from '../rope.ts';
import { EMBEDDING, expectedTensors, type LinearName, linearNames, linearPath, OUTPUT_HEAD } from '../tensor-names.ts';

export interface ReferenceLayer {
  /** [hidden] */
  inputNorm: Float64Array;
  /** [hidden] */
  postNorm: Float64Array;
  /** [headDim], null without QK-norm. */
  qNorm: Float64Array | null;
  kNorm: Float64Array | null;
  /** Each [out, in]. */
  linear: Record<LinearName, Float64Array>;
}

export interface ReferenceModel {
  architecture: Architecture;
  /** RoPE inverse frequencies, radians per position, [headDim / 2]. */
  inverseFrequencies: Float64Array;
  /** [vocab, hidden] */
  embedding: Float64Array;
  layers: ReferenceLayer[];
  /** [hidden] */
  finalNorm: Float64Array;
  /** [vocab, hidden]; the embedding itself where tied. */
  head: Float64Array;
}

/** LoRA parameters in f64: y = W x + scale * B (A x). `lora_A` is [rank, in], `lora_B` [out, rank]. */
export interface ReferenceAdapter {
  rank: number;
  scale: number;
  /** By short name, e.g. `layers.0.self_attn.q_proj.lora_A`. A linear layer without tensors has no LoRA. */
  tensors: Map<string, Float64Array>;
}

/** A model from a checkpoint's tensors under their Hugging Face names. Throws ModelFileError for a missing one. */
export function referenceModel(
  architecture: Architecture,
  tensors: ReadonlyMap<string, ArrayLike<number>>,
): ReferenceModel {
  const extents = expectedTensors(architecture);
  const take = (name: string): Float64Array => {
    const shape = extents.get(name)!;
    const tensor = tensors.get(name);
    const wanted = shape.reduce((product, extent) => product * extent, 1);
    if (tensor?.length !== wanted)
      throw new ModelFileError(
        'reference-tensor',
        `building the f64 reference: ${name} has ${tensor ? `${tensor.length} values` : 'no values'}, shape ` +
          `[${shape.join(', ')}] needs ${wanted}. Pass the tensors of a checkpoint of this architecture.`,
      );
    return Float64Array.from(tensor);
  };
  const embedding = take(EMBEDDING);
  const layers = Array.from({ length: architecture.layers }, (_, index): ReferenceLayer => {
    const prefix = `model.layers.${index}`;
    return {
      inputNorm: take(`${prefix}.input_layernorm.weight`),
      postNorm: take(`${prefix}.post_attention_layernorm.weight`),
      qNorm: architecture.qkNorm ? take(`${prefix}.self_attn.q_norm.weight`) : null,
      kNorm: architecture.qkNorm ? take(`${prefix}.self_attn.k_norm.weight`) : null,
      linear: Object.fromEntries(
        linearNames.map((name) => [name, take(`${prefix}.${linearPath(name)}.weight`)]),
      ) as Record<LinearName, Float64Array>,
    };
  });
  return {
    architecture,
    inverseFrequencies: ropeInverseFrequencies(architecture),
    embedding,
    layers,
    finalNorm: take('model.norm.weight'),
    head: architecture.tied ? embedding : take(OUTPUT_HEAD),
  };
}

/** The f64 reference of an opened checkpoint; reads all of its tensors. */
export async function loadReferenceModel(files: ModelFiles): Promise<ReferenceModel> {
  const tensors = new Map<string, Float64Array>();
  for (const [name, ref] of files.tensors) {
    const values = new Float64Array(ref.shape.reduce((product, extent) => product * extent, 1));
    const word = new DataView(new ArrayBuffer(4));
    for await (const chunk of files.readWeightChunks(ref, 2 ** 24)) {
      chunk.values.forEach((value, i) => {
        // bf16 is the upper half of an f32.
        if (chunk.storage === 'bf16') word.setUint32(0, value * 65_536);
        values[chunk.offsetElements + i] = chunk.storage === 'bf16' ? word.getFloat32(0) : value;
      });
    }
    tensors.set(name, values);
  }
  return referenceModel(files.architecture, tensors);
}

/** An f64 copy of an adapter. Throws ModelFileError where its tensors are not those of the configuration. */
export function referenceAdapter(
  architecture: Architecture,
  adapter: Pick<Adapter, 'config'> & { tensors: ReadonlyMap<string, ArrayLike<number>> },
): ReferenceAdapter {
  const config: LoraConfig = adapter.config;
  const tensors = new Map<string, Float64Array>();
  for (const { name, shape } of adapterTensorNames(architecture, config)) {
    const tensor = adapter.tensors.get(name);
    if (tensor?.length !== shape[0] * shape[1])
      throw new ModelFileError(
        'reference-adapter',
        `building the f64 reference: ${name} has ${tensor?.length ?? 'no'} values, shape [${shape.join(', ')}] needs ` +
          `${shape[0] * shape[1]}. Pass an adapter of this architecture and rank.`,
      );
    tensors.set(name, Float64Array.from(tensor));
  }
  const unknown = [...adapter.tensors.keys()].find((name) => !tensors.has(name));
  if (unknown !== undefined)
    throw new ModelFileError(
      'reference-adapter',
      `building the f64 reference: found adapter tensor ${unknown}; wanted only those of the targets ` +
        `${config.targets.join(', ')}. Use the adapter of this model, with short names.`,
    );
  return { rank: config.rank, scale: loraScale(config), tensors };
}

/** Zeros of the adapter's shapes: what a backward pass accumulates into. */
export function zeroGradients(adapter: ReferenceAdapter): Map<string, Float64Array> {
  return new Map([...adapter.tensors].map(([name, tensor]) => [name, new Float64Array(tensor.length)]));
}
