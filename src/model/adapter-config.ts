// adapter_config.json of PEFT, read strictly and written as PEFT writes it.
// Not the weights (adapter-files.ts). Invariant: a field that would change the forward pass and is not implemented is
// refused by name, also one that this code has never heard of; so an adapter is never applied in part.
import { z } from 'zod';
import { fileFault, showValue } from './file-fault.ts';
import { checkShape } from './json-file.ts';
import { checkLoraConfig, type LoraConfig, resolveTargets } from './lora.ts';

export const ADAPTER_CONFIG = 'adapter_config.json';

const schema = z.looseObject({
  peft_type: z.literal('LORA'),
  task_type: z.literal('CAUSAL_LM').nullish(),
  r: z.int().positive(),
  lora_alpha: z.number(),
  lora_dropout: z.number().min(0).max(1).default(0),
  use_rslora: z.boolean().default(false),
  target_modules: z.union([z.array(z.string()), z.literal('all-linear')]),
  bias: z.string().default('none'),
  base_model_name_or_path: z.string().nullish(),
  init_lora_weights: z.union([z.boolean(), z.string()]).default(true),
});

// Fields without effect on how a saved adapter is applied. All others must be unset: null, false, [], {}.
const harmless = new Set([
  ...Object.keys(schema.shape),
  'auto_mapping',
  'inference_mode',
  'megatron_core',
  'peft_version',
  'qalora_group_size',
  'revision',
]);

// Initialisations that leave the base weights alone. Others (pissa, olora, corda, loftq, ...) train against a changed
// base.
const plainInits: readonly unknown[] = [true, false, 'gaussian', 'eva', 'orthogonal'];

/** The LoRA settings in a parsed adapter_config.json, with what deserves a note. `path` names the file in errors. */
export function parseAdapterConfig(
  value: unknown,
  path: string,
): { config: LoraConfig; baseModel: string; notes: string[] } {
  const doing = `reading ${path}`;
  const fields = checkShape(schema, value, doing);
  if (fields.bias !== 'none') throw unsupported('bias', fields.bias, 'none', doing);
  if (!plainInits.includes(fields.init_lora_weights)) {
    throw unsupported('init_lora_weights', fields.init_lora_weights, 'an initialisation on the unchanged base', doing);
  }
  for (const [key, set] of Object.entries(fields)) {
    if (!harmless.has(key) && !isUnset(set)) throw unsupported(key, set, 'it unset', doing);
  }
  const targets = resolveTargets(fields.target_modules, doing);
  const config = { rank: fields.r, alpha: fields.lora_alpha, useRslora: fields.use_rslora, targets };
  checkLoraConfig(config, doing);
  const notes: string[] = [];
  if (fields.lora_dropout > 0) notes.push(`${path} has lora_dropout ${fields.lora_dropout}; it is not applied`);
  return { config, baseModel: fields.base_model_name_or_path ?? '', notes };
}

/**
 * adapter_config.json as `json.dumps(fields, indent=2, sort_keys=True)` of Python writes it, without a last newline.
 */
export function formatAdapterConfig(config: LoraConfig, baseModel: string): string {
  checkLoraConfig(config, `writing ${ADAPTER_CONFIG}`);
  const fields: Record<string, unknown> = {
    alpha_pattern: {},
    auto_mapping: null,
    base_model_name_or_path: baseModel === '' ? null : baseModel,
    bias: 'none',
    fan_in_fan_out: false,
    inference_mode: true,
    init_lora_weights: true,
    layers_pattern: null,
    layers_to_transform: null,
    lora_alpha: config.alpha,
    lora_dropout: 0,
    modules_to_save: null,
    peft_type: 'LORA',
    r: config.rank,
    rank_pattern: {},
    revision: null,
    target_modules: config.targets,
    task_type: 'CAUSAL_LM',
    use_dora: false,
    use_rslora: config.useRslora,
  };
  const text = JSON.stringify(fields, null, 2).replace('"lora_dropout": 0,', '"lora_dropout": 0.0,');
  // Python escapes everything outside ASCII.
  return text.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function isUnset(value: unknown): boolean {
  if (value === null || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

function unsupported(key: string, value: unknown, wanted: string, doing: string) {
  return fileFault('unsupported-adapter', {
    doing,
    found: `${key} = ${showValue(value)}`,
    wanted: `${key} = ${wanted}`,
    remedy: 'Only plain LoRA is supported; merge this adapter into its base with PEFT and use the merged model.',
  });
}
