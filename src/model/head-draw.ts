// What is done with a chunk of logits: drawing ids from the truncated distribution, and the log-probs of given ids.
// Not the logits (head.ts). Invariant: the sampler's log-probs and the trainer's come from the same kernel.
import type { View } from '../gpu/buffers.ts';
import { foldedGrid } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { logprobs } from '../kernels/logprobs.ts';
import { sample, sampleScalars } from '../kernels/sample.ts';
import type { Head } from './head.ts';

export interface SamplingSettings {
  temperature: number;
  /** 0 is off. */
  topK: number;
  /** 1 is off. */
  topP: number;
  /** 0 is off. */
  minP: number;
}

/**
 * Records max, log-sum-exp, log-prob of the target and entropy of the chunk's rows into `stats` [.., 4] from
 * `chunk.first`, over the temperature-scaled distribution of ids below `vocabulary`.
 */
export function recordLogprobs(
  r: Recorder,
  head: Head,
  chunk: { first: number; rows: number },
  targets: View,
  stats: View,
  inverseTemperature: number,
  vocabulary: number,
): void {
  r.dispatch(
    logprobs,
    [head.logits.view, targets, stats],
    { rows: chunk.rows, vocabulary, stride: head.logits.stride, rowOffset: chunk.first, inverseTemperature },
    foldedGrid(chunk.rows),
  );
}

/**
 * Records one draw a row of the chunk into `ids` and `truncated` from `chunk.first`. `keys`: [.., 8] u32 a row: seed,
 * step, group, member, position, live, 0, 0. `unused` is any buffer that the kernel's test output may be bound to.
 */
export function recordDraw(
  r: Recorder,
  head: Head,
  chunk: { first: number; rows: number },
  keys: View,
  ids: View,
  truncated: View,
  unused: View,
  settings: SamplingSettings,
  vocabulary: number,
): void {
  r.dispatch(
    sample,
    [head.logits.view, keys, ids, truncated, unused],
    { rows: chunk.rows, vocabulary, stride: head.logits.stride, rowOffset: chunk.first, ...sampleScalars(settings) },
    foldedGrid(chunk.rows),
  );
}
