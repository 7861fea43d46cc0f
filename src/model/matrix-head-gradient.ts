// From dL/dlogprob to the gradient of the residual stream after the last layer, in the matrix family: the twin of
// recordHeadBackward. Logits are computed again chunk by chunk; their gradient exists as packed f16 rows alone.
// Invariant: the sum over ids is cut into slices that follow from the vocabulary alone, so a row's bits do not depend on
// the chunk that it is in.
import type { View } from '../gpu/buffers.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { gatherGrid, gatherRows } from '../kernels/gather-rows.ts';
import { logprobsBackwardPack, logprobsBackwardPackGrid } from '../kernels/logprobs-backward-pack.ts';
import { packedWidth } from '../kernels/matrix-tiles.ts';
import { recordNormBackward } from './backward.ts';
import { type Head, headChunks, recordLogits } from './head.ts';
import { recordSlicedInputGradient, slicedElements } from './input-gradient.ts';
import { matrixOperand } from './matrix-weights.ts';
import type { GpuModel } from './weights.ts';
import type { BackwardBuffers, Workspace } from './workspace.ts';

/** Whether a model's head takes this path: a matrix of the family in one part. */
export function runsMatrixHead(model: GpuModel): boolean {
  return matrixOperand(model.head) !== undefined && model.head.parts.length === 1;
}

/** Elements of the scratch that a head's chunks need. */
export function matrixHeadElements(model: GpuModel, head: Head): number {
  return slicedElements(model.head, head.rows, head.dNormed.stride);
}

/**
 * Records dL/d(output) into `back.dx` for the rows chosen last. `stats` and `gradient` are by chosen row, in the same
 * order; other rows get zero. `partial`: scratch of `matrixHeadElements` f32.
 */
export function recordMatrixHeadBackward(
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  back: BackwardBuffers,
  head: Head,
  partial: View,
  count: number,
  targets: View,
  stats: View,
  gradient: View,
  inverseTemperature: number,
  vocabulary: number,
): void {
  const operand = matrixOperand(model.head)!;
  const c4 = head.gathered.stride / 4;
  const width = packedWidth(model.head.rows);
  r.clear(back.dx.view);
  for (const chunk of headChunks(head, count)) {
    recordLogits(r, model, workspace, head, chunk);
    const packed = operand.scratch(r, chunk.rows, width);
    r.dispatch(
      logprobsBackwardPack,
      [targets, stats, gradient, head.logits.view, packed.packed, packed.scales],
      {
        rows: chunk.rows,
        vocabulary,
        stride4: head.logits.stride / 4,
        packed4: width / 8,
        rowOffset: chunk.first,
        inverseTemperature,
      },
      logprobsBackwardPackGrid(chunk.rows, width),
    );
    recordSlicedInputGradient(r, operand, model.head, packed, chunk.rows, head.dNormed, partial);
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
