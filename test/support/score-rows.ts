// Log-probs and entropies of all tokens of sequences, by the same pass and head as a trainer's.
import { allocate, readF32, release, upload } from '../../src/gpu/buffers.ts';
import type { Gpu } from '../../src/gpu/device.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import type { GpuAdapter } from '../../src/model/adapter-gpu.ts';
import { recordForward, sequencesBatch } from '../../src/model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../../src/model/head.ts';
import { recordLogprobs } from '../../src/model/head-draw.ts';
import { runsFused } from '../../src/model/matrix-weights.ts';
import type { GpuModel } from '../../src/model/weights.ts';
import { createWorkspace } from '../../src/model/workspace.ts';

/** By sequence, for each token but the first. */
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
  const arch = model.architecture;
  const workspace = createWorkspace(gpu, arch, adapter?.layout ?? null, {
    rows,
    slots: inputs.length,
    cacheLength: Math.max(...inputs.map(({ length }) => length)),
    training,
    fused: runsFused(gpu, model),
  });
  const head = createHead(gpu, arch, rows, vocabulary, arch.vocabSize * 4 * 64);
  const r = createRecorder(gpu);
  const targets = allocate(gpu, 'targets', rows * 4);
  const stats = allocate(gpu, 'stats', rows * 16);
  try {
    recordForward(gpu, r, model, workspace, adapter, batch);
    chooseRows(
      gpu,
      r,
      head,
      Uint32Array.from({ length: rows }, (_, i) => i),
    );
    upload(gpu, targets, Uint32Array.from(sequences.flatMap((ids) => ids.slice(1))));
    for (const chunk of headChunks(head, rows)) {
      recordLogits(r, model, workspace, head, chunk);
      recordLogprobs(r, head, chunk, targets, stats, 1 / temperature);
    }
    r.submit();
    const values = await readF32(gpu, stats, rows * 4);
    let at = 0;
    return inputs.map((ids) =>
      ids.map(() => {
        const [, , logprob, entropy] = values.subarray(at, (at += 4));
        return { logprob: logprob!, entropy: entropy! };
      }),
    );
  } finally {
    workspace.destroy();
    head.destroy();
    release(gpu, targets);
    release(gpu, stats);
  }
}
