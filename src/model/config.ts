// config.json and generation_config.json -> Architecture: all that the forward pass must know of a checkpoint's shape.
// Not a place for defaults of our own: an absent key gets the value that transformers gives it.
// Invariant: a setting that would change the forward pass and is not implemented is refused by name.
import { z } from 'zod';
import { fileFault, showValue } from './file-fault.ts';
import { checkShape } from './json-file.ts';
import { parseRope, type RopeParameters } from './rope-config.ts';

export type { RopeParameters } from './rope-config.ts';

/** A decoder of Qwen3-dense or Llama type. Widths are in elements. */
export interface Architecture {
  modelType: 'qwen3' | 'llama';
  vocabSize: number;
  hiddenSize: number;
  intermediateSize: number;
  layers: number;
  heads: number;
  kvHeads: number;
  /** Even; heads * headDim need not be hiddenSize. */
  headDim: number;
  rmsNormEps: number;
  /** RMSNorm over each head of q and k before the rotation (Qwen3). */
  qkNorm: boolean;
  /** The output head is the embedding. */
  tied: boolean;
  rope: RopeParameters;
  maxPositions: number;
  /** Every id that ends a generation, ascending; empty if the checkpoint names none. */
  eosTokenIds: number[];
  bosTokenId: number | null;
  padTokenId: number | null;
}

const count = z.int().positive();
const tokenId = z.int();
const tokenIds = z.union([tokenId, z.array(tokenId)]).nullish();
const configSchema = z.looseObject({
  vocab_size: count,
  hidden_size: count,
  intermediate_size: count,
  num_hidden_layers: count,
  num_attention_heads: count,
  num_key_value_heads: count.nullish(),
  head_dim: count.nullish(),
  rms_norm_eps: z.number().positive().default(1e-6),
  hidden_act: z.string().default('silu'),
  tie_word_embeddings: z.boolean().default(false),
  max_position_embeddings: count.optional(),
  architectures: z.array(z.string()).nullish(),
  attention_bias: z.boolean().nullish(),
  mlp_bias: z.boolean().nullish(),
  use_sliding_window: z.boolean().nullish(),
  sliding_window: z.int().nullish(),
  max_window_layers: z.int().nullish(),
  layer_types: z.array(z.string()).nullish(),
  eos_token_id: tokenIds,
  bos_token_id: tokenIds,
  pad_token_id: tokenIds,
});
type Config = z.infer<typeof configSchema>;
const generationSchema = z.looseObject({ eos_token_id: tokenIds });

// Class name and the defaults of transformers' configuration class for keys that a file may leave out.
const supported = {
  qwen3: { className: 'Qwen3ForCausalLM', headDim: 128, maxPositions: 32_768 },
  llama: { className: 'LlamaForCausalLM', headDim: null, maxPositions: 2_048 },
} as const;

/**
 * The architecture that two parsed JSON files describe; `label` names the checkpoint in errors. The ids that end a
 * generation are those of generation_config.json if it names any, else those of config.json: never the union, because
 * transformers' `generate` lets the first file win. Throws ModelFileError for anything that is not implemented.
 */
export function parseArchitecture(config: unknown, generationConfig: unknown | null, label: string): Architecture {
  const doing = `reading ${label}/config.json`;
  const modelType = parseModelType(config, doing);
  const fields = checkShape(configSchema, config, doing);
  refuseUnsupported(fields, modelType, doing);
  const kvHeads = parseKvHeads(fields, modelType, doing);
  const generation = checkShape(
    generationSchema.nullable(),
    generationConfig,
    `reading ${label}/generation_config.json`,
  );
  const eosTokenIds = [generation?.eos_token_id ?? fields.eos_token_id ?? []].flat();
  const outside = eosTokenIds.find((id) => id < 0 || id >= fields.vocab_size);
  if (outside !== undefined) {
    throw fileFault('bad-value', {
      doing: `reading ${label}/${generation?.eos_token_id == null ? 'config.json' : 'generation_config.json'}`,
      found: `eos_token_id ${outside}`,
      wanted: `ids from 0 to ${fields.vocab_size - 1} (vocab_size ${fields.vocab_size})`,
      remedy: 'Correct the file, or get it again from its publisher.',
    });
  }
  return {
    modelType,
    vocabSize: fields.vocab_size,
    hiddenSize: fields.hidden_size,
    intermediateSize: fields.intermediate_size,
    layers: fields.num_hidden_layers,
    heads: fields.num_attention_heads,
    kvHeads,
    headDim: parseHeadDim(fields, modelType, doing),
    rmsNormEps: fields.rms_norm_eps,
    qkNorm: modelType === 'qwen3',
    tied: fields.tie_word_embeddings,
    rope: parseRope(fields, doing),
    maxPositions: fields.max_position_embeddings ?? supported[modelType].maxPositions,
    eosTokenIds: [...new Set(eosTokenIds)].sort((a, b) => a - b),
    bosTokenId: optionalId(fields.bos_token_id),
    padTokenId: optionalId(fields.pad_token_id),
  };
}

function parseModelType(config: unknown, doing: string): Architecture['modelType'] {
  const { model_type: type } = checkShape(z.looseObject({ model_type: z.string() }), config, doing);
  if (Object.hasOwn(supported, type)) return type as Architecture['modelType'];
  throw refusal('model_type', type, 'qwen3 (dense) or llama', doing);
}

/**
 * Llama's configuration class falls back to multi-head attention; Qwen3's falls back to a number, so it is demanded.
 */
function parseKvHeads(fields: Config, modelType: Architecture['modelType'], doing: string): number {
  const heads = fields.num_attention_heads;
  const kvHeads = fields.num_key_value_heads ?? (modelType === 'llama' ? heads : null);
  if (kvHeads === null) throw refusal('num_key_value_heads', kvHeads, 'a number', doing);
  if (heads % kvHeads === 0) return kvHeads;
  throw refusal('num_key_value_heads', kvHeads, `a divisor of num_attention_heads ${heads}`, doing);
}

function parseHeadDim(fields: Config, modelType: Architecture['modelType'], doing: string): number {
  const { hidden_size: hidden, num_attention_heads: heads } = fields;
  const headDim = fields.head_dim ?? supported[modelType].headDim ?? hidden / heads;
  if (!Number.isInteger(headDim)) {
    throw refusal('head_dim', fields.head_dim, `one, as hidden_size ${hidden} is no multiple of ${heads} heads`, doing);
  }
  if (headDim % 2 !== 0) throw refusal('head_dim', headDim, 'an even number, for the rotation turns pairs', doing);
  return headDim;
}

function refuseUnsupported(fields: Config, modelType: Architecture['modelType'], doing: string): void {
  const { className } = supported[modelType];
  const classes = fields.architectures;
  if (classes && !classes.includes(className)) throw refusal('architectures', classes, className, doing);
  if (fields.hidden_act !== 'silu') throw refusal('hidden_act', fields.hidden_act, 'silu', doing);
  if (fields.attention_bias) throw refusal('attention_bias', true, 'false', doing);
  if (fields.mlp_bias) throw refusal('mlp_bias', true, 'false', doing);
  if (fields['quantization_config'] != null) {
    throw refusal('quantization_config', fields['quantization_config'], 'none: the BF16, F16 or F32 release', doing);
  }
  const sliding = fields.layer_types?.find((type) => type !== 'full_attention');
  if (sliding !== undefined) throw refusal('layer_types', sliding, 'full_attention in every layer', doing);
  if (fields.layer_types && fields.layer_types.length !== fields.num_hidden_layers) {
    throw refusal('layer_types', fields.layer_types, `${fields.num_hidden_layers} entries`, doing);
  }
  const windowed = fields.use_sliding_window && fields.sliding_window != null && !fields.layer_types;
  if (windowed && (fields.max_window_layers ?? 0) < fields.num_hidden_layers) {
    throw refusal('sliding_window', fields.sliding_window, 'no sliding window in use', doing);
  }
  const { dtype, torch_dtype: oldDtype } = fields;
  if (dtype != null && oldDtype != null && dtype !== oldDtype) {
    throw refusal('dtype', dtype, `the same as torch_dtype, ${showValue(oldDtype)}`, doing);
  }
}

/** A single id; some files write -1 or a list where the model has none of its own. */
function optionalId(value: number | number[] | null | undefined): number | null {
  const id = Array.isArray(value) ? value[0] : value;
  return id == null || id < 0 ? null : id;
}

function refusal(key: string, value: unknown, wanted: string, doing: string) {
  return fileFault('unsupported-config', {
    doing,
    found: `${key} = ${showValue(value)}`,
    wanted: `${key} = ${wanted}`,
    remedy: 'Use a checkpoint of a supported kind (Qwen3 dense, Llama), or correct the file.',
  });
}
