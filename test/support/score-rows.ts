// Log-probs and entropies of all tokens of sequences in one pass, a trainer's or a reference's.
import type { Gpu } from '../../src/gpu/device.ts';
import type { GpuAdapter } from '../../src/model/adapter-gpu.ts';
import { sequencesBatch } from '../../src/model/forward.ts';
import { createScorer } from '../../src/model/scorer.ts';
import type { GpuModel } from '../../src/model/weights.ts';

/** By sequence, for each token but the first. The head takes 64 rows at a time. */
export async function scoreRows(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter | null,
  sequences: readonly (readonly number[])[],
  training: boolean,
  vocabulary: number,
  temperature: number,
): Promise<{ logprob: number; entropy: number }[][]> {
  const inputs = sequences.map((ids) => ids.slice(0, -1));
  const batch = sequencesBatch(inputs);
  const rows = batch.tokens.length;
  const cacheLength = Math.max(...inputs.map(({ length }) => length));
  const headBytes = model.architecture.vocabSize * 4 * 64;
  const shape = { rows, slots: inputs.length, cacheLength, training, vocabulary, headBytes };
  const scorer = createScorer(gpu, model, adapter?.layout ?? null, shape, temperature);
  try {
    const targets = Uint32Array.from(sequences.flatMap((ids) => ids.slice(1)));
    const all = Array.from({ length: rows }, (_, i) => i);
    const { logprobs, entropies } = await scorer.score(adapter, batch, all, targets);
    let at = 0;
    return inputs.map((ids) => ids.map(() => ({ logprob: logprobs[at]!, entropy: entropies[at++]! })));
  } finally {
    scorer.destroy();
  }
}
