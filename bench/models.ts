// The models that the bench measures: a checkpoint folder, or a named shape with random weights made as they are read.
// Not a checkpoint writer. Invariant: the weights of a named shape follow from the position in the file alone, so two
// benches measure the same model; norms are ones, matrices are uniform in +-0.035.
import { fileURLToPath } from 'node:url';
import { philox4x32 } from '../src/lib/rng.ts';
import { parseArchitecture } from '../src/model/config.ts';
import { checkRange, missingFile } from '../src/model/file-source.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { layoutSafetensors } from '../src/model/safetensors-write.ts';
import { expectedTensors } from '../src/model/tensor-names.ts';
import type { DirectSource } from '../src/model/weight-chunks.ts';

const qwen3 = {
  model_type: 'qwen3',
  vocab_size: 151_936,
  num_hidden_layers: 28,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  max_position_embeddings: 40_960,
  tie_word_embeddings: true,
};

/** config.json of the named shapes. */
export const namedShapes: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'qwen3-0.6b': { ...qwen3, hidden_size: 1024, intermediate_size: 3072 },
  'qwen3-1.7b': { ...qwen3, hidden_size: 2048, intermediate_size: 6144 },
  'qwen3-4b': {
    ...qwen3,
    hidden_size: 2560,
    intermediate_size: 9728,
    num_hidden_layers: 36,
    num_attention_heads: 32,
  },
};

const blockValues = 2 ** 19;

/** Half a million bf16 values, uniform in +-0.035: the pattern that fills every matrix. */
function randomBlock(): Uint8Array<ArrayBuffer> {
  const words = new Uint16Array(blockValues);
  const value = new Float32Array(1);
  const bits = new Uint32Array(value.buffer);
  for (let i = 0; i < blockValues; i += 4) {
    const draws = philox4x32([i, 0, 0, 0], [0x62656e63, 0x68]);
    for (let j = 0; j < 4; j++) {
      value[0] = (draws[j]! / 2 ** 31 - 1) * 0.035;
      words[i + j] = bits[0]! >>> 16;
    }
  }
  return new Uint8Array(words.buffer);
}

/** A checkpoint of a named shape: config.json, and a model.safetensors that exists only where it is read. */
export function randomSource(name: string): DirectSource {
  const config = namedShapes[name]!;
  const label = `${name} (random weights)`;
  const shapes = expectedTensors(parseArchitecture(config, null, label));
  const tensors = [...shapes].map(([tensor, shape]) => ({ name: tensor, dtype: 'BF16' as const, shape }));
  const { head, ordered, totalBytes } = layoutSafetensors(tensors, { format: 'pt' });
  const configBytes = new TextEncoder().encode(JSON.stringify(config));
  const block = randomBlock();
  const norms: [from: number, end: number][] = [];
  let at = head.length;
  for (const { shape } of ordered) {
    const bytes = shape.reduce((product, extent) => product * extent, 2);
    if (shape.length === 1) norms.push([at, at + bytes]);
    at += bytes;
  }
  const sizes: Record<string, number> = { 'config.json': configBytes.length, 'model.safetensors': totalBytes };

  function weights(offset: number, out: Uint8Array): void {
    const { length } = out;
    for (let done = 0; done < length; ) {
      const from = (offset + done) % block.length;
      const part = block.subarray(from, from + Math.min(block.length - from, length - done));
      out.set(part, done);
      done += part.length;
    }
    for (const [from, end] of norms) {
      for (let i = Math.max(from, offset); i < Math.min(end, offset + length); i++)
        out[i - offset] = (i - from) % 2 === 0 ? 0x80 : 0x3f;
    }
    if (offset < head.length) out.set(head.subarray(offset, Math.min(head.length, offset + length)));
  }

  async function readInto(file: string, offset: number, into: Uint8Array): Promise<void> {
    const size = sizes[file];
    if (size === undefined) throw missingFile(label, file, Object.keys(sizes));
    checkRange(label, file, size, offset, into.length);
    if (file === 'config.json') into.set(configBytes.subarray(offset, offset + into.length));
    else weights(offset, into);
  }

  return {
    label,
    list: async () => Object.keys(sizes).sort(),
    size: async (file) => sizes[file] ?? null,
    async read(file, offset, length) {
      const bytes = new Uint8Array(length);
      await readInto(file, offset, bytes);
      return bytes;
    },
    readInto,
  };
}

const embedded = fileURLToPath(new URL('../fixtures/embedded-policy', import.meta.url));

/** A shape of the command line: its files, and the folder that they lie in (null: they are made as they are read). */
export function openShape(shape: string): { source: DirectSource; folder: string | null } {
  if (Object.hasOwn(namedShapes, shape)) return { source: randomSource(shape), folder: null };
  const folder = shape === 'embedded' ? embedded : shape;
  return { source: folderSource(folder), folder };
}
