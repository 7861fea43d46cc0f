// One fused linear layer with its LoRA, forward and backward, as dispatches of the matmul kernels.
// Not a kernel. Invariant: y = W x, then + s * B (A x) in its own accumulator, in the same order for the sampler, the
// reference pass and training.
import type { View } from '../gpu/buffers.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { matmulMode, recordMatmul } from '../kernels/matmul.ts';
import { recordMatmulNn } from '../kernels/matmul-nn.ts';
import { recordMatmulTn } from '../kernels/matmul-tn.ts';
import type { AdapterLayout, AdapterViews } from './adapter-gpu.ts';
import { applyMatrixProduct, applyMatrixTransposed } from './matrix-linear.ts';
import { matrixOperand } from './matrix-weights.ts';
import type { GpuMatrix, GroupName, LinearGroup } from './weights.ts';

/** A row-major f32 matrix: `stride` elements a row, a multiple of four. */
export interface Rows {
  view: View;
  stride: number;
}

/** Parameters (and, for training, where their gradients go) of an adapter that the pass uses. */
export interface ActiveAdapter {
  layout: AdapterLayout;
  views: AdapterViews;
}

/** out[:, column...] = (mode) x W^T for every part of a matrix. */
export function applyMatrix(r: Recorder, weight: GpuMatrix, x: Rows, rows: number, out: Rows, mode: number): void {
  const operand = matrixOperand(weight);
  if (operand && !operand.emulated) {
    applyMatrixProduct(r, operand, weight, x, rows, out, mode);
    return;
  }
  for (const part of weight.parts) {
    recordMatmul(
      r,
      [x.view, part.view, out.view],
      {
        rows,
        columns: part.rows,
        k4: padded(weight.columns) / 4,
        xStride4: x.stride / 4,
        xOffset4: 0,
        outStride: out.stride,
        outOffset: part.firstRow,
        mode,
        scale: 1,
      },
      weight.bf16,
    );
  }
}

/** dx = dOut W for every part of a matrix: the parts continue one sum over the output's columns. */
export function applyTransposed(r: Recorder, weight: GpuMatrix, dOut: Rows, rows: number, dx: Rows): void {
  const operand = matrixOperand(weight);
  if (operand && !operand.emulated) {
    applyMatrixTransposed(r, operand, weight, dOut, rows, dx);
    return;
  }
  for (const [i, part] of weight.parts.entries()) {
    recordMatmulNn(
      r,
      [dOut.view, part.view, dx.view],
      {
        rows,
        columns: weight.columns,
        n: part.rows,
        c4: padded(weight.columns) / 4,
        xStride4: dOut.stride / 4,
        xOffset4: part.firstRow / 4,
        outStride: dx.stride,
        outOffset: 0,
        mode: i === 0 ? matmulMode.overwrite : matmulMode.continue,
        scale: 1,
      },
      weight.bf16,
    );
  }
}

/**
 * out (mode) x W^T, then out += s * z B^T with z = x A^T if the adapter has this group; z is kept for the backward pass.
 */
export function linearForward(
  r: Recorder,
  group: LinearGroup,
  layer: number,
  name: GroupName,
  adapter: ActiveAdapter | null,
  x: Rows,
  z: Rows,
  rows: number,
  out: Rows,
  mode: number,
): void {
  applyMatrix(r, group.weight, x, rows, out, mode);
  const lora = adapter?.layout.layers[layer]?.[name];
  if (!adapter || !lora) return;
  const views = adapter.views.layers[layer]![name]!;
  const { rank, scale } = adapter.layout;
  const width = lora.targets.length * rank;
  recordMatmul(
    r,
    [x.view, views.a, z.view],
    {
      rows,
      columns: width,
      k4: padded(group.inWidth) / 4,
      xStride4: x.stride / 4,
      xOffset4: 0,
      outStride: z.stride,
      outOffset: 0,
      mode: matmulMode.overwrite,
      scale: 1,
    },
    false,
  );
  for (const [t, { target, outWidth }] of lora.targets.entries()) {
    recordMatmul(
      r,
      [z.view, views.b[t]!, out.view],
      {
        rows,
        columns: outWidth,
        k4: rank / 4,
        xStride4: z.stride / 4,
        xOffset4: (t * rank) / 4,
        outStride: out.stride,
        outOffset: group.outputs.find((output) => output.target === target)!.offset,
        mode: matmulMode.add,
        scale,
      },
      false,
    );
  }
}

/**
 * dx = dOut W + dz A with dz = s * dOut B; gradients of A and B are overwritten in `gradients`. `dx` null: the input
 * needs no gradient (it comes from the frozen embedding).
 */
export function linearBackward(
  r: Recorder,
  group: LinearGroup,
  layer: number,
  name: GroupName,
  adapter: ActiveAdapter,
  gradients: AdapterViews,
  x: Rows,
  z: Rows,
  dz: Rows,
  dOut: Rows,
  rows: number,
  dx: Rows | null,
): void {
  if (dx) applyTransposed(r, group.weight, dOut, rows, dx);
  const lora = adapter.layout.layers[layer]?.[name];
  if (!lora) return;
  const views = adapter.views.layers[layer]![name]!;
  const into = gradients.layers[layer]![name]!;
  const { rank, scale } = adapter.layout;
  for (const [t, { target, outWidth }] of lora.targets.entries()) {
    const offset = group.outputs.find((output) => output.target === target)!.offset;
    recordMatmulNn(
      r,
      [dOut.view, views.b[t]!, dz.view],
      {
        rows,
        columns: rank,
        n: outWidth,
        c4: rank / 4,
        xStride4: dOut.stride / 4,
        xOffset4: offset / 4,
        outStride: dz.stride,
        outOffset: t * rank,
        mode: matmulMode.overwrite,
        scale,
      },
      false,
    );
    recordMatmulTn(r, [dOut.view, z.view, into.b[t]!], {
      rows,
      iCount: outWidth,
      jCount: rank,
      aStride4: dOut.stride / 4,
      aOffset4: offset / 4,
      bStride4: z.stride / 4,
      bOffset4: (t * rank) / 4,
      outStride: rank,
      outOffset: 0,
      mode: matmulMode.overwrite,
      scale,
    });
  }
  const width = lora.targets.length * rank;
  const inStride = padded(group.inWidth);
  recordMatmulTn(r, [dz.view, x.view, into.a], {
    rows,
    iCount: width,
    jCount: group.inWidth,
    aStride4: dz.stride / 4,
    aOffset4: 0,
    bStride4: x.stride / 4,
    bOffset4: 0,
    outStride: inStride,
    outOffset: 0,
    mode: matmulMode.overwrite,
    scale: 1,
  });
  if (!dx) return;
  recordMatmulNn(
    r,
    [dz.view, views.a, dx.view],
    {
      rows,
      columns: group.inWidth,
      n: width,
      c4: inStride / 4,
      xStride4: dz.stride / 4,
      xOffset4: 0,
      outStride: dx.stride,
      outOffset: 0,
      mode: matmulMode.add,
      scale: 1,
    },
    false,
  );
}
