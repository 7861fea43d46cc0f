// Log-probs and entropies of sampled tokens by inference passes over whole sequences.
// Not the trainer's pass: no activations are kept, sequences lie side by side in a cache, and a pass ends after a number
// of rows, in the middle of a sequence. Invariant: nothing here depends on how the tokens were sampled.
import type { Gpu } from '../src/gpu/device.ts';
import type { GpuAdapter } from '../src/model/adapter-gpu.ts';
import { sequencesBatch } from '../src/model/forward.ts';
import { createScorer, type RowScores, type ScorerShape } from '../src/model/scorer.ts';
import type { GpuModel } from '../src/model/weights.ts';
import { packGroup, type TrainSequence } from '../src/rollout/pack.ts';

/** The scores of every sequence's masked tokens. @throws AuditError of `packGroup`, DeviceError `limit-too-small`. */
export async function referencePass(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter,
  sequences: readonly TrainSequence[],
  shape: ScorerShape,
  temperature: number,
): Promise<RowScores[]> {
  const scorer = createScorer(gpu, model, adapter.layout, shape, temperature);
  const { slots, cacheLength } = shape;
  const out: RowScores[] = [];
  try {
    for (const micro of packGroup(sequences, slots * cacheLength, slots)) {
      const batch = sequencesBatch(micro.inputs);
      const found = await scorer.score(adapter, batch, [...micro.rows], micro.targets);
      for (let s = 0; s < micro.inputs.length; s++) {
        const [from, to] = [micro.starts[s]!, micro.starts[s + 1]!];
        out.push({ logprobs: found.logprobs.slice(from, to), entropies: found.entropies.slice(from, to) });
      }
    }
    return out;
  } finally {
    scorer.destroy();
  }
}
