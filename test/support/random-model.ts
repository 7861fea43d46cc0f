// A small Qwen3-shaped checkpoint of random bf16 weights in memory, of widths that the matrix family takes.
// Invariant: a function of the seed.
import { testValues } from '../../src/kernels/case-data.ts';
import { f32ToBf16 } from '../../src/lib/half.ts';
import { parseArchitecture } from '../../src/model/config.ts';
import { type FileSource, memorySource } from '../../src/model/file-source.ts';
import { layoutSafetensors } from '../../src/model/safetensors-write.ts';
import { expectedTensors } from '../../src/model/tensor-names.ts';

/** config.json: two layers, four heads of 16 in two groups, 64 wide. */
export const randomConfig = {
  model_type: 'qwen3',
  vocab_size: 320,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  max_position_embeddings: 512,
  tie_word_embeddings: true,
};

/** The checkpoint's files. Norms are near one, matrices uniform in +-1/6. */
export function randomModel(seed = 1, changed: Partial<typeof randomConfig> = {}): FileSource {
  const config = { ...randomConfig, ...changed };
  const shapes = expectedTensors(parseArchitecture(config, null, 'random model'));
  const tensors = [...shapes].map(([name, shape]) => ({ name, dtype: 'BF16' as const, shape }));
  const { head, ordered, totalBytes } = layoutSafetensors(tensors, { format: 'pt' });
  const bytes = new Uint8Array(totalBytes);
  bytes.set(head);
  let at = head.length;
  for (const [i, { shape }] of ordered.entries()) {
    const count = shape.reduce((product, extent) => product * extent, 1);
    // Without outliers: a model that is itself well conditioned, so that roundings stay small.
    const values = testValues(count, seed * 1000 + i).map((value) => Math.max(-1, Math.min(1, value)));
    const words = Uint16Array.from(values, (value) => f32ToBf16(shape.length === 1 ? 1 + value / 8 : value / 6));
    bytes.set(new Uint8Array(words.buffer), at);
    at += count * 2;
  }
  return memorySource('random model', {
    'config.json': new TextEncoder().encode(JSON.stringify(config)),
    'model.safetensors': bytes,
  });
}
