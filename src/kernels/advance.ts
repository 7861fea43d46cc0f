// The end of a decode step on the device: drawn ids become the next tokens, positions go up, results are kept in a ring.
// Not stop detection: the host reads results some steps later and makes rows idle by the live word of their keys.
// Invariant: a row that is not live does not change; nothing of the dispatch depends on the step, so steps can be
// recorded ahead.
import type { View } from '../gpu/buffers.ts';
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { testValues } from './case-data.ts';
import { keyRow, noId } from './sample.ts';

/** Words of a result: id, and as f32 bits truncated log-prob, log-prob, entropy. */
export const resultWords = 4;

/** What `advance` reads and writes; `rows` in the order of the decode batch. */
export interface AdvanceViews {
  /** [rows] from the draw. */
  ids: View;
  /** [rows] f32: log-probs under the truncated distribution. */
  truncated: View;
  /** [rows, 4] from `logprobs`. */
  stats: View;
  /** [rows]: becomes the ids. */
  tokens: View;
  /** [rows, 2]: slot, position. */
  meta: View;
  /** [rows, 8] as `keyRow` writes it; word 4, the position, goes up where word 5, live, is not 0. */
  keys: View;
  /** [ring, rows, 4]. */
  results: View;
  /** [1]: steps done so far; step n is stored at n modulo ring. */
  steps: View;
}

/** Records the end of a decode step of `rows` rows, with a ring of `ring` steps. */
export function recordAdvance(r: Recorder, views: AdvanceViews, rows: number, ring: number): void {
  const { ids, truncated, stats, tokens, meta, keys, results, steps } = views;
  r.dispatch(advance, [ids, truncated, stats, tokens, meta, keys, results, steps], { rows, ring }, [1, 1, 1]);
}

/** One row's result; null for a row that was not live, or whose logits were not finite. */
export interface StepResult {
  id: number;
  truncatedLogprob: number;
  logprob: number;
  /** Nats. */
  entropy: number;
}

/** The results of one step, from the ring's words [ring, rows, 4]. */
export function readResults(words: Uint32Array<ArrayBuffer>, step: number, rows: number): (StepResult | null)[] {
  const ring = words.length / (rows * resultWords);
  const floats = new Float32Array(words.buffer, words.byteOffset, words.length);
  return Array.from({ length: rows }, (_, row) => {
    const at = ((step % ring) * rows + row) * resultWords;
    if (words[at] === noId) return null;
    return { id: words[at]!, truncatedLogprob: floats[at + 1]!, logprob: floats[at + 2]!, entropy: floats[at + 3]! };
  });
}

function makeCase(rows: number, ring: number, step: number): KernelCase {
  const bits = (values: Float32Array<ArrayBuffer>) => new Uint32Array(values.buffer);
  const live = Array.from({ length: rows }, (_, r) => r % 3 !== 1);
  const ids = Uint32Array.from(live, (_, r) => (r % 5 === 3 ? noId : r * 7919));
  const truncated = bits(testValues(rows, 61));
  const stats = bits(testValues(rows * 4, 62));
  const tokens = Uint32Array.from(live, (_, r) => 1000 + r);
  const meta = Uint32Array.from(live.flatMap((_, r) => [rows - r, 40 * r]));
  const keys = Uint32Array.from(
    live.flatMap((on, r) => keyRow({ seed: 1, step: 2, group: 3, member: r, position: 9 * r }, on)),
  );
  const results = Uint32Array.from({ length: ring * rows * resultWords }, (_, i) => i + 5);
  const after = { tokens: tokens.slice(), meta: meta.slice(), keys: keys.slice(), results: results.slice() };
  for (const [r, on] of live.entries()) {
    const at = ((step % ring) * rows + r) * resultWords;
    after.results.set([noId, 0x7fc00000, 0x7fc00000, 0x7fc00000], at);
    if (!on || ids[r] === noId) continue;
    after.results.set([ids[r]!, truncated[r]!, stats[r * 4 + 2]!, stats[r * 4 + 3]!], at);
    after.tokens[r] = ids[r]!;
    after.meta[r * 2 + 1]! += 1;
    after.keys[r * 8 + 4]! += 1;
  }
  return {
    name: `${rows} rows, step ${step} of a ring of ${ring}`,
    params: { rows, ring },
    grid: [1, 1, 1],
    inputs: { ids, truncated, stats, tokens, meta, keys, results, steps: Uint32Array.of(step) },
    expected: { ...after, steps: Uint32Array.of(step + 1) },
  };
}

export const advance: QualifiedKernel = {
  name: 'advance',
  bindings: [
    { name: 'ids', access: 'read' },
    { name: 'truncated', access: 'read' },
    { name: 'stats', access: 'read' },
    { name: 'tokens', access: 'read_write' },
    { name: 'meta', access: 'read_write' },
    { name: 'keys', access: 'read_write' },
    { name: 'results', access: 'read_write' },
    { name: 'steps', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['ring', 'u32'],
  ],
  cases: () => [makeCase(1, 1, 0), makeCase(4, 8, 3), makeCase(64, 2, 5), makeCase(130, 3, 7), makeCase(5, 1, 9)],
};
