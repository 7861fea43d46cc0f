// Batched generation on the GPU: slots with a KV cache each, which take any number of new tokens a pass and may draw
// their next token from the last one. Prefill, decode and tool observations are the same pass.
// Not a rollout: no text, no tools. Invariant: what a slot draws depends on its own tokens and its key alone, never on
// which other slots are in the pass.
import { allocate, readBytes, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createRecorder } from '../gpu/recorder.ts';
import { recordCacheFork } from '../kernels/cache-fork.ts';
import { keyRow, keyWords } from '../kernels/sample.ts';
import { KernelError } from '../lib/errors.ts';
import type { SampleKey } from '../lib/rng.ts';
import type { GpuAdapter } from '../model/adapter-gpu.ts';
import { recordForward } from '../model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../model/head.ts';
import { recordDraw, type SamplingSettings } from '../model/head-draw.ts';
import { runsFused } from '../model/matrix-weights.ts';
import type { GpuModel } from '../model/weights.ts';
import { createWorkspace } from '../model/workspace.ts';
import { createDecoder, type DecodeRow, type Decoding } from './decoder.ts';

/** New tokens of one slot; positions count from the slot's beginning. */
export interface SlotWork {
  slot: number;
  /** Position of the first of `tokens`; all earlier positions are cached. */
  start: number;
  tokens: readonly number[];
  /** Draw a token after the last of these, with this key; null to only fill the cache. */
  key: SampleKey | null;
}

export interface Drawn {
  id: number;
  /** Natural log, at the sampling temperature, over the whole vocabulary: an f32 value. */
  logprob: number;
  /** The same under the truncated distribution that was drawn from. */
  truncatedLogprob: number;
  /** Entropy in nats at the sampling temperature over the whole vocabulary. */
  entropy: number;
}

export interface SamplerShape {
  slots: number;
  cacheLength: number;
  /** Most tokens of one pass. */
  rows: number;
}

export interface Sampler {
  readonly shape: SamplerShape;
  /** Runs one pass; the results follow `work`, null where no token was drawn. */
  step(work: readonly SlotWork[]): Promise<(Drawn | null)[]>;
  /**
   * Starts decoding with steps sent ahead of their results, where the device and the model's family allow it; the
   * adapter in use stays until the next call. Passes of `step` may follow once all that was sent has resolved.
   */
  decode?(rows: readonly DecodeRow[]): Decoding;
  /** Copies the first `length` cached positions of a slot to another. */
  fork(fromSlot: number, toSlot: number, length: number): void;
  /** The adapter whose weights are used from now on; null is the base model. */
  use(adapter: GpuAdapter | null): void;
  destroy(): void;
}

/**
 * Makes a sampler on a model. `vocabulary`: ids below it exist; padded rows of the head are never drawn and take no part
 * in log-probs.
 */
export function createSampler(
  gpu: Gpu,
  model: GpuModel,
  shape: SamplerShape,
  settings: SamplingSettings,
  vocabulary: number,
  adapterLayout: GpuAdapter['layout'] | null,
): Sampler {
  const recorder = createRecorder(gpu);
  const workspace = createWorkspace(gpu, model.architecture, adapterLayout, {
    ...shape,
    training: false,
    fused: runsFused(gpu, model),
  });
  const head = createHead(gpu, model.architecture, shape.slots, vocabulary);
  const views: View[] = [];
  const take = (label: string, elements: number) => {
    const view = allocate(gpu, label, elements * 4);
    views.push(view);
    return view;
  };
  const keys = take('sampler.keys', shape.slots * keyWords);
  // [slots]: id; [slots]: truncated log-prob; [slots, 4]: max, log-sum-exp, log-prob, entropy.
  const ids = take('sampler.ids', shape.slots);
  const truncated = take('sampler.truncated', shape.slots);
  const stats = take('sampler.stats', shape.slots * 4);
  const results = take('sampler.results', shape.slots * 6);
  // A buffer cannot be copied onto itself, so forks pass through here.
  const transit = take('sampler.transit', workspace.fused ? 4 : workspace.shape.cacheLength * workspace.kvWidth);
  const draws = { keys, ids, truncated, stats };
  const decoder = workspace.fused ? createDecoder(gpu, model, workspace, head, draws, settings, recorder) : null;
  let adapter: GpuAdapter | null = null;

  async function step(work: readonly SlotWork[]): Promise<(Drawn | null)[]> {
    const rows = work.reduce((sum, { tokens }) => sum + tokens.length, 0);
    if (rows > shape.rows) {
      throw new KernelError(
        'too-many-rows',
        `sampling: ${rows} tokens in one pass, room for ${shape.rows}; give fewer a pass.`,
      );
    }
    const drawing = work.flatMap((w, i) => (w.key ? [{ i, key: w.key }] : []));
    const lastRows: number[] = [];
    let row = 0;
    for (const w of work) {
      row += w.tokens.length;
      if (w.key) lastRows.push(row - 1);
    }
    recordForward(gpu, recorder, model, workspace, adapter, {
      tokens: Uint32Array.from(work.flatMap(({ tokens }) => tokens)),
      slots: Uint32Array.from(work.flatMap(({ slot, tokens }) => tokens.map(() => slot))),
      positions: Uint32Array.from(work.flatMap(({ start, tokens }) => tokens.map((_, t) => start + t))),
    });
    const count = drawing.length;
    const out: (Drawn | null)[] = work.map(() => null);
    if (count === 0) {
      recorder.submit();
      return out;
    }
    const words = new Uint32Array(count * keyWords);
    for (const [n, { key }] of drawing.entries()) words.set(keyRow(key), n * keyWords);
    chooseRows(gpu, recorder, head, Uint32Array.from(lastRows));
    upload(gpu, keys, words);
    for (const chunk of headChunks(head, count)) {
      recordLogits(recorder, model, workspace, head, chunk);
      recordDraw(recorder, head, chunk, draws, settings);
    }
    recorder.copy(ids, 0, results, 0, count * 4);
    recorder.copy(truncated, 0, results, count * 4, count * 4);
    recorder.copy(stats, 0, results, count * 8, count * 16);
    recorder.submit();
    const bytes = await readBytes(gpu, results, count * 24);
    const idWords = new Uint32Array(bytes, 0, count);
    const floats = new Float32Array(bytes);
    for (const [n, { i }] of drawing.entries()) {
      const at = count * 2 + n * 4;
      out[i] = {
        id: idWords[n]!,
        truncatedLogprob: floats[count + n]!,
        logprob: floats[at + 2]!,
        entropy: floats[at + 3]!,
      };
    }
    return out;
  }

  return {
    shape,
    step,
    ...(decoder && { decode: (rows: readonly DecodeRow[]) => decoder.start(rows, adapter) }),
    fork(fromSlot, toSlot, length) {
      if (workspace.fused) {
        const { kvHeads, headDim } = model.architecture;
        const fork = { kvHeads, headDim, cacheLength: workspace.shape.cacheLength, length };
        for (const { k, v, cacheScales } of workspace.layers)
          recordCacheFork(recorder, [k, v, cacheScales!], fromSlot, toSlot, fork);
        return;
      }
      const slotBytes = workspace.shape.cacheLength * workspace.kvWidth * 4;
      for (const { k, v } of workspace.layers) {
        for (const cache of [k, v]) {
          const bytes = length * workspace.kvWidth * 4;
          recorder.copy(cache, fromSlot * slotBytes, transit, 0, bytes);
          recorder.copy(transit, 0, cache, toSlot * slotBytes, bytes);
        }
      }
    },
    use(next) {
      adapter = next;
    },
    destroy() {
      workspace.destroy();
      head.destroy();
      decoder?.destroy();
      for (const view of views) release(gpu, view);
    },
  };
}
