// The exact tensors that a checkpoint of an architecture holds, by their Hugging Face names and shapes.
// Not a loader. Invariant: this list is the only place that knows the names; a checkpoint has these tensors and no
// other.
import type { Architecture } from './config.ts';

export const EMBEDDING = 'model.embed_tokens.weight';
export const OUTPUT_HEAD = 'lm_head.weight';

/** The linear layers of a decoder layer, in PEFT's parameter order. */
export const linearNames = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;
export type LinearName = (typeof linearNames)[number];

/** `self_attn.q_proj`, `mlp.up_proj` and so on: the path inside a layer. */
export function linearPath(name: LinearName): string {
  return name === 'gate_proj' || name === 'up_proj' || name === 'down_proj' ? `mlp.${name}` : `self_attn.${name}`;
}

/** Output and input width of a linear layer: its weight is [outFeatures, inFeatures]. */
export function linearShape(arch: Architecture, name: LinearName): { outFeatures: number; inFeatures: number } {
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim } = arch;
  switch (name) {
    case 'q_proj':
      return { outFeatures: heads * headDim, inFeatures: hiddenSize };
    case 'k_proj':
    case 'v_proj':
      return { outFeatures: kvHeads * headDim, inFeatures: hiddenSize };
    case 'o_proj':
      return { outFeatures: hiddenSize, inFeatures: heads * headDim };
    case 'gate_proj':
    case 'up_proj':
      return { outFeatures: intermediateSize, inFeatures: hiddenSize };
    case 'down_proj':
      return { outFeatures: hiddenSize, inFeatures: intermediateSize };
  }
}

/** Name -> shape of every tensor, in forward order. A tied model has no output head of its own. */
export function expectedTensors(arch: Architecture): Map<string, number[]> {
  const { vocabSize, hiddenSize, headDim } = arch;
  const expected = new Map<string, number[]>([[EMBEDDING, [vocabSize, hiddenSize]]]);
  for (let layer = 0; layer < arch.layers; layer++) {
    const prefix = `model.layers.${layer}`;
    expected.set(`${prefix}.input_layernorm.weight`, [hiddenSize]);
    expected.set(`${prefix}.post_attention_layernorm.weight`, [hiddenSize]);
    if (arch.qkNorm) {
      expected.set(`${prefix}.self_attn.q_norm.weight`, [headDim]);
      expected.set(`${prefix}.self_attn.k_norm.weight`, [headDim]);
    }
    for (const name of linearNames) {
      const { outFeatures, inFeatures } = linearShape(arch, name);
      expected.set(`${prefix}.${linearPath(name)}.weight`, [outFeatures, inFeatures]);
    }
  }
  expected.set('model.norm.weight', [hiddenSize]);
  if (!arch.tied) expected.set(OUTPUT_HEAD, [vocabSize, hiddenSize]);
  return expected;
}

/** Buffers that old checkpoints carry and that are recomputed from config.json instead. */
export function isIgnoredBuffer(name: string): boolean {
  return /^model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq$/.test(name);
}
