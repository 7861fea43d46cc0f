// Puts a micro-batch's loss inputs on the device and records the loss gradient kernel.
// Not the loss value: that is policyLoss, on the host in f64. Invariant: the normaliser is folded into the token weights,
// so that the kernel knows no window.
import { allocate, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { gradientKind, grpoGradient, grpoGradientGrid, grpoGradientParams } from '../kernels/grpo-gradient.ts';
import { anchorLogprobs, effectiveMask, type LossBatch, type LossOptions } from './losses.ts';

export interface LossGradientBuffers {
  starts: View;
  advantages: View;
  weights: View;
  logprobs: View;
  anchors: View;
  references: View;
  /** [tokens]: dL/dlogprob. */
  gradient: View;
  views: View[];
}

/** Buffers for micro-batches of at most `tokens` trained tokens and `sequences` sequences. */
export function createLossGradientBuffers(gpu: Gpu, tokens: number, sequences: number): LossGradientBuffers {
  const views: View[] = [];
  const take = (label: string, elements: number) => {
    const view = allocate(gpu, `loss.${label}`, elements * 4);
    views.push(view);
    return view;
  };
  return {
    starts: take('starts', sequences + 1),
    advantages: take('advantages', sequences),
    weights: take('weights', tokens),
    logprobs: take('logprobs', tokens),
    anchors: take('anchors', tokens),
    references: take('references', tokens),
    gradient: take('gradient', tokens),
    views,
  };
}

/** Records dL/dlogprob of a batch into `buffers.gradient`. `scales`: the weight of each row's tokens, [rows]. */
export function recordLossGradient(
  gpu: Gpu,
  r: Recorder,
  buffers: LossGradientBuffers,
  batch: LossBatch,
  options: LossOptions,
  scales: ArrayLike<number>,
): void {
  const sequences = batch.rowStarts.length - 1;
  const mask = effectiveMask(batch, options);
  const weights = new Float32Array(mask.length);
  for (let row = 0; row < sequences; row++) {
    for (let t = batch.rowStarts[row]!; t < batch.rowStarts[row + 1]!; t++) weights[t] = mask[t]! * scales[row]!;
  }
  r.submit();
  upload(gpu, buffers.starts, Uint32Array.from(batch.rowStarts));
  upload(gpu, buffers.advantages, Float32Array.from(batch.advantages));
  upload(gpu, buffers.weights, weights);
  upload(gpu, buffers.logprobs, Float32Array.from(batch.logprobs));
  upload(gpu, buffers.anchors, Float32Array.from(anchorLogprobs(batch, options.kind)));
  if (batch.reference) upload(gpu, buffers.references, Float32Array.from(batch.reference));
  const { starts, advantages, logprobs, anchors, references, gradient } = buffers;
  r.dispatch(
    grpoGradient,
    [starts, advantages, buffers.weights, logprobs, anchors, references, gradient],
    grpoGradientParams(sequences, options),
    grpoGradientGrid(sequences),
    { KIND: gradientKind[options.kind] },
  );
}
