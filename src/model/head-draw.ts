// What is done with a chunk of logits: drawing ids from the truncated distribution, and the log-probs of given ids.
// Not the logits (head.ts). Invariant: the sampler's log-probs and the trainer's come from the same kernels.
import type { View } from '../gpu/buffers.ts';
import type { Recorder } from '../gpu/recorder.ts';
import type { DrawSettings } from '../kernels/sample.ts';
import { recordRowDraw, recordRowLogprobs } from '../kernels/vocabulary-row.ts';
import type { Head } from './head.ts';

export type SamplingSettings = DrawSettings;

interface Chunk {
  first: number;
  rows: number;
}

const logitRows = (head: Head, chunk: Chunk) => ({
  logits: head.logits.view,
  stride: head.logits.stride,
  rowOffset: chunk.first,
  rows: chunk.rows,
});

/**
 * Records max, log-sum-exp, log-prob of the target and entropy of the chunk's rows into `stats` [.., 4] from
 * `chunk.first`, over the temperature-scaled distribution of the ids that exist.
 */
export function recordLogprobs(
  r: Recorder,
  head: Head,
  chunk: Chunk,
  targets: View,
  stats: View,
  inverseTemperature: number,
): void {
  recordRowLogprobs(r, head.work, logitRows(head, chunk), targets, stats, inverseTemperature);
}

/**
 * Records one draw a row of the chunk into `ids` and `truncated`, with the statistics of what was drawn in `stats`, all
 * from `chunk.first`. `keys`: [.., 8] u32 a row: seed, step, group, member, position, live, 0, 0.
 */
export function recordDraw(
  r: Recorder,
  head: Head,
  chunk: Chunk,
  views: { keys: View; ids: View; truncated: View; stats: View },
  settings: SamplingSettings,
): void {
  recordRowDraw(r, head.work, logitRows(head, chunk), views, settings);
}
