// Teacher-forced logits of a few token sequences under the base model and an adapter, a row at a time on the host.
// Not a loss and not sampling: it exists to tell two sets of weights apart. Invariant: the pass is the one that sampling
// and training record, so the rows have their bits; [tokens, vocabulary] never exists.
import { readF32 } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createRecorder } from '../gpu/recorder.ts';
import type { GpuAdapter } from './adapter-gpu.ts';
import { recordForward, sequencesBatch } from './forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from './head.ts';
import { runsFused } from './matrix-weights.ts';
import type { GpuModel } from './weights.ts';
import { createWorkspace } from './workspace.ts';

/** Gets the f32 logits [vocabulary] after token `position` of a sequence; the array is valid during the call only. */
export type ProbeVisitor = (sequence: number, position: number, logits: Float32Array) => void | Promise<void>;

/** Bytes of logits that are read back at a time. */
const chunkBytes = 16 * 2 ** 20;

/**
 * Runs every sequence (one or more ids below `vocabulary`) through the model, with the adapter or without (null), and
 * visits the logits of each position in order, from position `from` of each sequence (0 by default). Ids from
 * `vocabulary` on are left out.
 */
export async function probeLogits(
  gpu: Gpu,
  model: GpuModel,
  adapter: GpuAdapter | null,
  sequences: readonly (readonly number[])[],
  vocabulary: number,
  visit: ProbeVisitor,
  from: readonly number[] = sequences.map(() => 0),
): Promise<void> {
  const arch = model.architecture;
  const longest = Math.max(...sequences.map(({ length }) => length));
  const workspace = createWorkspace(gpu, arch, adapter?.layout ?? null, {
    rows: longest,
    slots: 1,
    cacheLength: longest,
    training: false,
    fused: runsFused(gpu, model),
  });
  const head = createHead(gpu, arch, longest, vocabulary, chunkBytes);
  const r = createRecorder(gpu);
  try {
    for (const [sequence, ids] of sequences.entries()) {
      recordForward(gpu, r, model, workspace, adapter, sequencesBatch([ids]));
      const first = from[sequence]!;
      const rows = Uint32Array.from({ length: ids.length - first }, (_, i) => first + i);
      chooseRows(gpu, r, head, rows);
      for (const chunk of headChunks(head, rows.length)) {
        recordLogits(r, model, workspace, head, chunk);
        r.submit();
        const { stride, view } = head.logits;
        const values = await readF32(gpu, view, chunk.rows * stride);
        for (let row = 0; row < chunk.rows; row++) {
          await visit(sequence, first + chunk.first + row, values.subarray(row * stride, row * stride + vocabulary));
        }
      }
    }
  } finally {
    workspace.destroy();
    head.destroy();
  }
}
