// Log-probs and entropies of given tokens, by forward passes over whole sequences and the head of sampling and training.
// Not a sampler and not the trainer's pass, unless its shape says so. Invariant: [tokens, vocabulary] never exists; how
// many rows a pass has changes no bit.
import { allocate, readF32, release, upload } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createRecorder } from '../gpu/recorder.ts';
import type { AdapterLayout, GpuAdapter } from './adapter-gpu.ts';
import { type Batch, recordForward } from './forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from './head.ts';
import { recordLogprobs } from './head-draw.ts';
import { runsFused } from './matrix-weights.ts';
import type { GpuModel } from './weights.ts';
import { createWorkspace } from './workspace.ts';

export interface ScorerShape {
  /** Rows of a pass: a batch of more is cut, in the middle of sequences too. */
  rows: number;
  /** Sequences that lie in the cache together, and positions of each. */
  slots: number;
  cacheLength: number;
  /** Keeps activations as the trainer's pass does; then a batch must fit one pass. */
  training?: boolean;
  /** Ids of the vocabulary that count, and bytes of logits at a time; the head's own where absent. */
  vocabulary?: number;
  headBytes?: number;
}

/** Of chosen rows, in their order; f32, nats, at the temperature, over the whole vocabulary. */
export interface RowScores {
  logprobs: Float32Array;
  entropies: Float32Array;
}

export interface Scorer {
  /**
   * Scores `targets[i]` as the token after row `chosen[i]` of the batch; `chosen` ascends.
   * @throws what `recordForward` and the device throw.
   */
  score(
    adapter: GpuAdapter | null,
    batch: Batch,
    chosen: readonly number[],
    targets: Uint32Array<ArrayBuffer>,
  ): Promise<RowScores>;
  destroy(): void;
}

/** A scorer with buffers for `shape`, at a temperature above 0. @throws DeviceError `limit-too-small`. */
export function createScorer(
  gpu: Gpu,
  model: GpuModel,
  layout: AdapterLayout | null,
  { rows, slots, cacheLength, training = false, vocabulary, headBytes }: ScorerShape,
  temperature: number,
): Scorer {
  const { architecture } = model;
  const fused = runsFused(gpu, model);
  const workspace = createWorkspace(gpu, architecture, layout, { rows, slots, cacheLength, training, fused });
  const head = createHead(gpu, architecture, rows, vocabulary, headBytes);
  const r = createRecorder(gpu);
  const wanted = allocate(gpu, 'scorer.targets', rows * 4);
  const stats = allocate(gpu, 'scorer.stats', rows * 16);
  return {
    async score(adapter, batch, chosen, targets) {
      const logprobs = new Float32Array(chosen.length);
      const entropies = new Float32Array(chosen.length);
      let done = 0;
      for (let first = 0; first < batch.tokens.length; first += rows) {
        recordForward(gpu, r, model, workspace, adapter, {
          tokens: batch.tokens.slice(first, first + rows),
          slots: batch.slots.slice(first, first + rows),
          positions: batch.positions.slice(first, first + rows),
        });
        const here: number[] = [];
        for (let i = done; i < chosen.length && chosen[i]! < first + rows; i++) here.push(chosen[i]! - first);
        const count = here.length;
        if (count === 0) {
          // What the next pass uploads must not reach this one.
          r.submit();
          continue;
        }
        chooseRows(gpu, r, head, Uint32Array.from(here));
        upload(gpu, wanted, targets.slice(done, done + count));
        for (const chunk of headChunks(head, count)) {
          recordLogits(r, model, workspace, head, chunk);
          recordLogprobs(r, head, chunk, wanted, stats, 1 / temperature);
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
      return { logprobs, entropies };
    },
    destroy() {
      workspace.destroy();
      head.destroy();
      release(gpu, wanted);
      release(gpu, stats);
    },
  };
}
