// Log-probs and entropies of sampled tokens by inference passes over whole sequences.
// Not the trainer's pass: no activations are kept, sequences lie side by side in a cache, and a pass ends after a number
// of rows, in the middle of a sequence. Invariant: nothing here depends on how the tokens were sampled.
import { allocate, readF32, release, upload } from '../src/gpu/buffers.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { createRecorder } from '../src/gpu/recorder.ts';
import type { GpuAdapter } from '../src/model/adapter-gpu.ts';
import { recordForward, sequencesBatch } from '../src/model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../src/model/head.ts';
import { recordLogprobs } from '../src/model/head-draw.ts';
import { runsFused } from '../src/model/matrix-weights.ts';
import type { GpuModel } from '../src/model/weights.ts';
import { createWorkspace } from '../src/model/workspace.ts';
import { packGroup, type TrainSequence } from '../src/rollout/pack.ts';

export interface ReferenceShape {
  /** Rows of a pass. */
  rows: number;
  /** Sequences that lie in the cache together, and the longest of all. */
  sequences: number;
  length: number;
}

/** Scores of a sequence's masked tokens, at the temperature, over the whole vocabulary. */
export interface TokenScores {
  /** Nats, as the entropies. */
  logprobs: Float32Array;
  entropies: Float32Array;
}

/** The scores of every sequence. @throws AuditError of `packGroup`, DeviceError `limit-too-small`. */
export async function referencePass(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter,
  sequences: readonly TrainSequence[],
  shape: ReferenceShape,
  temperature: number,
): Promise<TokenScores[]> {
  const { architecture } = model;
  const { rows } = shape;
  const workspace = createWorkspace(gpu, architecture, adapter.layout, {
    rows,
    slots: shape.sequences,
    cacheLength: shape.length,
    training: false,
    fused: runsFused(gpu, model),
  });
  const head = createHead(gpu, architecture, rows);
  const r = createRecorder(gpu);
  const targets = allocate(gpu, 'reference.targets', rows * 4);
  const stats = allocate(gpu, 'reference.stats', rows * 16);
  const out: TokenScores[] = [];
  try {
    for (const micro of packGroup(sequences, shape.sequences * shape.length, shape.sequences)) {
      const batch = sequencesBatch(micro.inputs);
      const logprobs = new Float32Array(micro.rows.length);
      const entropies = new Float32Array(micro.rows.length);
      let done = 0;
      for (let first = 0; first < batch.tokens.length; first += rows) {
        recordForward(gpu, r, model, workspace, adapter, {
          tokens: batch.tokens.slice(first, first + rows),
          slots: batch.slots.slice(first, first + rows),
          positions: batch.positions.slice(first, first + rows),
        });
        const chosen = micro.rows.filter((row) => row >= first && row < first + rows).map((row) => row - first);
        const count = chosen.length;
        if (count === 0) continue;
        chooseRows(gpu, r, head, chosen);
        upload(gpu, targets, micro.targets.slice(done, done + count));
        for (const chunk of headChunks(head, count)) {
          recordLogits(r, model, workspace, head, chunk);
          recordLogprobs(r, head, chunk, targets, stats, 1 / temperature);
        }
        r.submit();
        // [rows, 4]: max, log-sum-exp, log-prob, entropy.
        const values = await readF32(gpu, stats, count * 4);
        for (let i = 0; i < count; i++) {
          logprobs[done + i] = values[i * 4 + 2]!;
          entropies[done + i] = values[i * 4 + 3]!;
        }
        done += count;
      }
      for (let s = 0; s < micro.inputs.length; s++) {
        const [from, to] = [micro.starts[s]!, micro.starts[s + 1]!];
        out.push({ logprobs: logprobs.slice(from, to), entropies: entropies.slice(from, to) });
      }
    }
    return out;
  } finally {
    workspace.destroy();
    head.destroy();
    for (const view of [targets, stats]) release(gpu, view);
  }
}
