// LoRA's part of the backward pass of one fused linear layer in the matrix family: dz, dB, dA, each operand read in whole
// lines, and every long sum cut into fixed slices that are added in order.
// Not the input's gradient (input-gradient.ts). Invariant: slices of columns and chunks of rows follow from the layer's
// widths and the row's index alone, so two runs give the same bits; all in f32.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { columnScalars, dzSlice, dzSlices, type LoraColumns, loraDz, loraDzGrid } from '../kernels/lora-dz.ts';
import { gradientChunk, loraGradient, loraGradientConstants, loraGradientGrid } from '../kernels/lora-gradient.ts';
import { recordOrderedSum } from '../kernels/ordered-sum.ts';
import type { AdapterLayout, LoraGroupLayout } from './adapter-gpu.ts';
import type { Rows } from './linear.ts';
import type { LinearGroup } from './weights.ts';

/** Where a fused layer's LoRA lies: its targets' columns in the output, its tensors in the flat buffers (elements). */
export interface LoraPlace {
  targets: LoraColumns[];
  inWidth: number;
  outWidth: number;
  aOffset: number;
  bOffsets: number[];
}

/** The place of a group's LoRA. */
export function loraPlace(group: LinearGroup, lora: LoraGroupLayout): LoraPlace {
  return {
    targets: lora.targets.map(({ target, outWidth }) => ({
      start: group.outputs.find((output) => output.target === target)!.offset,
      width: outWidth,
    })),
    inWidth: lora.inWidth,
    outWidth: group.weight.rows,
    aOffset: lora.aOffset,
    bOffsets: lora.targets.map(({ bOffset }) => bOffset),
  };
}

/** What `recordLoraBackward` reads and writes; all f32. */
export interface LoraBackward {
  rows: number;
  place: LoraPlace;
  /** The gradient of the layer's output [rows, stride]. */
  dOut: Rows;
  /** The layer's input [rows, stride], not rounded. */
  x: Rows;
  /** A x of the forward pass [rows, targets * rank]. */
  z: Rows;
  /** Gets the gradient of z, LoRA's scale in it; `recordInputGradient` takes it. Stride as z's. */
  dz: Rows;
  /** B of the layer's targets transposed, next to each other: [rank, 4 * stride4] from quad offset4 (fused-adapter.ts). */
  b: { view: View; stride4: number; offset4: number };
  /** The flat gradient: A's and B's elements of the layer are overwritten. */
  gradient: View;
}

interface Region {
  /** Elements from A's first to B's last, A before B. */
  length: number;
  /** Whether tensors leave elements between them, which nothing writes. */
  gaps: boolean;
}

function regionOf({ targets, inWidth, aOffset, bOffsets }: LoraPlace, rank: number): Region {
  const last = targets.length - 1;
  const length = bOffsets[last]! + targets[last]!.width * rank - aOffset;
  const used = targets.reduce((sum, { width }) => sum + width * rank, targets.length * rank * padded(inWidth));
  return { length, gaps: used !== length };
}

/** Elements of the scratch buffer that a layer's backward pass needs. */
export function loraPartialElements(place: LoraPlace, rank: number, rows: number, zStride: number): number {
  const chunks = ceilDiv(rows, gradientChunk(place.outWidth));
  return Math.max(chunks * regionOf(place, rank).length, dzSlices(place.targets) * rows * zStride);
}

/**
 * Records dz = s * dOut B, dB = s * dOut^T z and dA = dz^T x of one fused layer: four kernels, five or six dispatches.
 * `partial` is scratch of at least `loraPartialElements` f32; layers may share it.
 */
export function recordLoraBackward(r: Recorder, partial: View, adapter: AdapterLayout, layer: LoraBackward): void {
  const { rows, place, dOut, x, z, dz, b, gradient } = layer;
  const { rank, scale } = adapter;
  const { targets, inWidth } = place;
  const width = targets.length * rank;
  const slices = dzSlices(targets);
  r.dispatch(
    loraDz,
    [dOut.view, b.view, slices > 1 ? partial : dz.view],
    {
      rows,
      outStride4: dOut.stride / 4,
      zStride4: dz.stride / 4,
      ...columnScalars(targets),
      bStride4: b.stride4,
      bOffset4: b.offset4,
      slice: dzSlice(targets),
      rank4: rank / 4,
      scale,
    },
    loraDzGrid(rows, targets.length, rank, slices),
  );
  if (slices > 1) recordOrderedSum(r, partial, dz.view, rows * dz.stride, slices);

  const { length, gaps } = regionOf(place, rank);
  const chunk = gradientChunk(place.outWidth);
  const outs = place.bOffsets.map((offset) => offset - place.aOffset);
  if (gaps) r.clear(partial);
  const shared = { rows, length4: length / 4 };
  r.dispatch(
    loraGradient,
    [dOut.view, z.view, partial],
    {
      ...shared,
      bigStride4: dOut.stride / 4,
      smallStride4: z.stride / 4,
      ...columnScalars(targets),
      out0: outs[0]!,
      out1: outs[1] ?? 0,
      out2: outs[2] ?? 0,
      outStride4: 0,
      rank4: rank / 4,
      scale,
    },
    loraGradientGrid(rows, chunk, targets, rank),
    loraGradientConstants(chunk, false),
  );
  // A's rows of all targets have the same columns of x: one target of their whole width.
  const all = [{ start: 0, width: padded(inWidth) }];
  r.dispatch(
    loraGradient,
    [x.view, dz.view, partial],
    {
      ...shared,
      bigStride4: x.stride / 4,
      smallStride4: dz.stride / 4,
      ...columnScalars(all),
      out0: 0,
      out1: 0,
      out2: 0,
      outStride4: padded(inWidth) / 4,
      rank4: width / 4,
      scale: 1,
    },
    loraGradientGrid(rows, chunk, all, width),
    loraGradientConstants(chunk, true),
  );
  recordOrderedSum(r, partial, gradient, length, ceilDiv(rows, chunk), place.aOffset);
}
