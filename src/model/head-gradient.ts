// From dL/dlogprob of the trained tokens to the gradient of the residual stream after the last layer.
// Not the layers' backward (backward.ts). Invariant: logits are computed again chunk by chunk with the forward's own
// kernels, so [tokens, vocabulary] never exists and the probabilities are those of the log-probs.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, foldedGrid } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { gatherGrid, gatherRows } from '../kernels/gather-rows.ts';
import { logprobsBackward } from '../kernels/logprobs-backward.ts';
import { KernelError } from '../lib/errors.ts';
import { recordNormBackward } from './backward.ts';
import { type Head, headChunks, recordLogits } from './head.ts';
import { applyTransposed } from './linear.ts';
import { matrixHeadElements, recordMatrixHeadBackward, runsMatrixHead } from './matrix-head-gradient.ts';
import type { GpuModel } from './weights.ts';
import type { Workspace } from './workspace.ts';

/**
 * Records dL/d(output) into `workspace.backward.dx` for the rows chosen last. `stats` and `gradient` are by chosen row,
 * in the same order; other rows get zero.
 */
export function recordHeadBackward(
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  head: Head,
  count: number,
  targets: View,
  stats: View,
  gradient: View,
  inverseTemperature: number,
  vocabulary: number,
): void {
  const back = workspace.backward;
  if (!back) throw new KernelError('no-training', 'running a backward pass: the workspace was made for inference.');
  if (workspace.fused && runsMatrixHead(model)) {
    const partial = workspace.fused.scratch(matrixHeadElements(model, head));
    const rest = [count, targets, stats, gradient, inverseTemperature, vocabulary] as const;
    recordMatrixHeadBackward(r, model, workspace, back, head, partial, ...rest);
    return;
  }
  const c4 = head.gathered.stride / 4;
  r.clear(back.dx.view);
  for (const chunk of headChunks(head, count)) {
    recordLogits(r, model, workspace, head, chunk);
    const stride4 = head.logits.stride / 4;
    r.dispatch(
      logprobsBackward,
      [targets, stats, gradient, head.logits.view],
      { rows: chunk.rows, vocabulary, stride4, rowOffset: chunk.first, inverseTemperature },
      foldedGrid(ceilDiv(stride4 * chunk.rows, 64)),
    );
    applyTransposed(r, model.head, head.logits, chunk.rows, head.dNormed);
    recordNormBackward(
      r,
      model.architecture,
      head.gathered,
      model.finalNorm,
      head.dNormed,
      head.dGathered,
      chunk.rows,
      false,
    );
    r.dispatch(
      gatherRows,
      [head.index, head.dGathered.view, back.dx.view],
      { rows: chunk.rows, c4, xStride4: c4, outStride4: back.dx.stride / 4, indexOffset: chunk.first },
      gatherGrid(chunk.rows, c4),
      { SCATTER: 1 },
    );
  }
}
