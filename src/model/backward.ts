// The backward pass to the LoRA parameters, layer by layer from the last; the base model is frozen.
// Not the loss: the gradient of the residual stream after the last layer comes in through `backward.dx`.
// Invariant: no atomics; tokens in batch order; activations that are cheap are recomputed by the forward's own kernels.
import { upload } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { recordAttentionKvGradient } from '../kernels/attention-kv-gradient.ts';
import { recordAttentionScores } from '../kernels/attention-scores.ts';
import { rowHeadGrid } from '../kernels/attention-softmax.ts';
import { attentionSoftmaxBackward } from '../kernels/attention-softmax-backward.ts';
import { recordAttentionValues } from '../kernels/attention-values.ts';
import { qkNormRopeGrid } from '../kernels/qk-norm-rope.ts';
import { qkNormRopeBackward } from '../kernels/qk-norm-rope-backward.ts';
import { recordRmsnormBackward } from '../kernels/rmsnorm-backward.ts';
import { swigluGrid } from '../kernels/swiglu.ts';
import { swigluBackward } from '../kernels/swiglu-backward.ts';
import { KernelError } from '../lib/errors.ts';
import type { AdapterViews } from './adapter-gpu.ts';
import type { Architecture } from './config.ts';
import {
  type Batch,
  headParams,
  longestRow,
  recordLayer,
  recordNorm,
  recordProbabilities,
  recordSwiglu,
} from './forward.ts';
import { recordFusedBackward } from './fused-backward.ts';
import { type ActiveAdapter, linearBackward, type Rows } from './linear.ts';
import type { GpuModel } from './weights.ts';
import { attentionChunks, type BackwardBuffers, type LayerState, type Workspace } from './workspace.ts';

/** Records the gradient of RMSNorm: `dx` gets it, or is added to. */
export function recordNormBackward(
  r: Recorder,
  arch: Architecture,
  x: Rows,
  gain: Workspace['tokens'],
  dOut: Rows,
  dx: Rows,
  rows: number,
  add: boolean,
): void {
  const params = { rows, columns: arch.hiddenSize, k4: padded(arch.hiddenSize) / 4, eps: arch.rmsNormEps };
  recordRmsnormBackward(r, [x.view, gain, dOut.view, dx.view], params, add);
}

/** First row and number of rows of each slot. */
function slotRanges(batch: Batch, slots: number): Uint32Array<ArrayBuffer> {
  const ranges = new Uint32Array(slots * 2);
  for (let r = 0; r < batch.slots.length; r++) {
    const slot = batch.slots[r]!;
    if (ranges[slot * 2 + 1] === 0) ranges[slot * 2] = r;
    ranges[slot * 2 + 1]! += 1;
  }
  return ranges;
}

function recordAttentionBackward(
  r: Recorder,
  arch: Architecture,
  workspace: Workspace,
  state: LayerState,
  back: BackwardBuffers,
  rows: number,
  keys: number,
): void {
  const { heads, kvHeads, headDim } = arch;
  const { cacheLength, slots } = workspace.shape;
  const d4 = headDim / 4;
  const sStride = padded(keys);
  const kvStride4 = workspace.kvWidth / 4;
  r.clear(back.dk);
  r.clear(back.dv);
  for (const chunk of attentionChunks(workspace, heads, rows, keys)) {
    const shared = { rows: chunk.rows, rowOffset: chunk.first, heads, kvHeads, d4, cacheLength };
    recordProbabilities(r, arch, workspace, state, chunk, keys);
    recordAttentionScores(
      r,
      [workspace.meta, back.dAttention.view, state.v, back.dScores],
      { ...shared, aStride4: back.dAttention.stride / 4, bStride4: kvStride4, sStride4: sStride / 4, scale: 1 },
      keys,
      workspace.rowsTogether,
    );
    recordAttentionKvGradient(r, [workspace.meta, workspace.ranges, workspace.scores, back.dAttention.view, back.dv], {
      ...shared,
      aStride4: back.dAttention.stride / 4,
      outStride4: kvStride4,
      sStride,
      slots,
    });
    r.dispatch(
      attentionSoftmaxBackward,
      [workspace.meta, workspace.scores, back.dScores],
      { rows: chunk.rows, rowOffset: chunk.first, heads, sStride, scale: 1 / Math.sqrt(headDim) },
      rowHeadGrid(chunk.rows, heads),
    );
    recordAttentionValues(
      r,
      [workspace.meta, back.dScores, state.k, back.dq.view],
      { ...shared, outStride4: back.dq.stride / 4, bStride4: kvStride4, sStride4: sStride / 4 },
      workspace.rowsTogether,
    );
    recordAttentionKvGradient(r, [workspace.meta, workspace.ranges, back.dScores, state.q.view, back.dk], {
      ...shared,
      aStride4: state.q.stride / 4,
      outStride4: kvStride4,
      sStride,
      slots,
    });
  }
}

/**
 * Records the backward pass of the batch that `recordForward` ran last in a training workspace. `backward.dx` holds
 * dL / d(output), [rows, hidden]; the gradients of every adapted tensor are overwritten in `gradients`.
 * Several passes over one batch may follow one forward pass.
 */
export function recordBackward(
  gpu: Gpu,
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  adapter: ActiveAdapter,
  batch: Batch,
  gradients: AdapterViews,
): void {
  const back = workspace.backward;
  if (!back)
    throw new KernelError(
      'no-training',
      'running a backward pass: the workspace was made for inference; make it with training: true.',
    );
  if (workspace.fused) {
    recordFusedBackward(gpu, r, model, workspace, back, adapter, batch, gradients);
    return;
  }
  const arch = model.architecture;
  const rows = batch.tokens.length;
  const keys = longestRow(batch);
  const dWideQkv: Rows = { view: back.dWide.view, stride: (arch.heads + 2 * arch.kvHeads) * arch.headDim };
  const dWideGateUp: Rows = { view: back.dWide.view, stride: 2 * padded(arch.intermediateSize) };
  r.submit();
  upload(gpu, workspace.ranges, slotRanges(batch, workspace.shape.slots));
  for (let layer = model.layers.length - 1; layer >= 0; layer--) {
    const { groups, inputNorm, postNorm, qkGain } = model.layers[layer]!;
    const state = workspace.layers[layer]!;
    if (workspace.shape.recompute) recordLayer(r, model, workspace, layer, adapter, rows, keys);
    const c4 = padded(arch.intermediateSize) / 4;
    recordSwiglu(r, arch, workspace, state, rows);
    linearBackward(
      r,
      groups.down,
      layer,
      'down',
      adapter,
      gradients,
      workspace.activation,
      state.z.down,
      back.dz,
      back.dx,
      rows,
      back.dActivation,
    );
    r.dispatch(
      swigluBackward,
      [state.gateUp.view, back.dActivation.view, dWideGateUp.view],
      { rows, c4, inStride4: dWideGateUp.stride / 4, upOffset4: c4 },
      swigluGrid(rows, c4),
    );
    recordNorm(r, arch, state.middle, postNorm, workspace.normed, rows);
    linearBackward(
      r,
      groups.gateUp,
      layer,
      'gateUp',
      adapter,
      gradients,
      workspace.normed,
      state.z.gateUp,
      back.dz,
      dWideGateUp,
      rows,
      back.dNormed,
    );
    recordNormBackward(r, arch, state.middle, postNorm, back.dNormed, back.dx, rows, true);
    linearBackward(
      r,
      groups.o,
      layer,
      'o',
      adapter,
      gradients,
      state.attention,
      state.z.o,
      back.dz,
      back.dx,
      rows,
      back.dAttention,
    );
    recordAttentionBackward(r, arch, workspace, state, back, rows, keys);
    r.dispatch(
      qkNormRopeBackward,
      [state.qkv.view, qkGain, model.rope, workspace.meta, back.dq.view, back.dk, back.dv, dWideQkv.view],
      headParams(arch, workspace, rows),
      qkNormRopeGrid(rows, arch),
      { NORM: arch.qkNorm ? 1 : 0 },
    );
    recordNorm(r, arch, state.input, inputNorm, workspace.normed, rows);
    const dNormed = layer > 0 ? back.dNormed : null;
    linearBackward(
      r,
      groups.qkv,
      layer,
      'qkv',
      adapter,
      gradients,
      workspace.normed,
      state.z.qkv,
      back.dz,
      dWideQkv,
      rows,
      dNormed,
    );
    if (layer > 0) recordNormBackward(r, arch, state.input, inputNorm, back.dNormed, back.dx, rows, true);
  }
}
