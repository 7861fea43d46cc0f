// The gradient of a fused linear layer with respect to its input in the matrix family: dx = dOut W + dz A in one product.
// Not the packing of dOut (matrix-pack or matrix-rows). Invariant: one accumulator an output, n ascending, or, for the
// head's long sum, fixed slices of n that are added in order; a row's bits depend on that row alone.
import type { View } from '../gpu/buffers.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { matrixMatmulNnLora, matrixMatmulNnLoraConstants, nnSlices } from '../kernels/matrix-matmul-nn-lora.ts';
import { matrixPlainNn, plainNnGrid } from '../kernels/matrix-plain-nn.ts';
import { packedWidth, tallGrid } from '../kernels/matrix-tiles.ts';
import { recordOrderedSum } from '../kernels/ordered-sum.ts';
import type { Rows } from './linear.ts';
import type { MatrixOperand } from './matrix-weights.ts';
import type { GpuMatrix } from './weights.ts';

/** dz as `recordLoraBackward` left it, and A stacked over the targets [targets * rank, padded input width]. */
export interface InputGradientLora {
  dz: Rows;
  a: View;
  /** Targets times the stored rank. */
  width: number;
}

/**
 * Records dx = dOut W (+ dz A). dOut: `rows` packed rows of the layer's output width with their scales; rows up to the
 * next multiple of 128 are read. `weight` has one part.
 */
export function recordInputGradient(
  r: Recorder,
  operand: MatrixOperand,
  weight: GpuMatrix,
  dOut: { packed: View; scales: View },
  rows: number,
  dx: Rows,
  lora: InputGradientLora | null,
): void {
  record(r, operand, weight, dOut, rows, dx.view, dx.stride, lora, 1);
}

/**
 * The same without LoRA for a long sum with few outputs, such as the head's: the sum in up to four slices, so that a
 * few hundred rows fill the device. `partial`: scratch of `slicedElements` f32.
 */
export function recordSlicedInputGradient(
  r: Recorder,
  operand: MatrixOperand,
  weight: GpuMatrix,
  dOut: { packed: View; scales: View },
  rows: number,
  dx: Rows,
  partial: View,
): void {
  const slices = nnSlices(weight.rows);
  if (slices === 1) {
    record(r, operand, weight, dOut, rows, dx.view, dx.stride, null, 1);
    return;
  }
  record(r, operand, weight, dOut, rows, partial, dx.stride, null, slices);
  recordOrderedSum(r, partial, dx.view, rows * dx.stride, slices);
}

/** Elements of scratch that `recordSlicedInputGradient` needs. */
export function slicedElements(weight: GpuMatrix, rows: number, stride: number): number {
  return nnSlices(weight.rows) * rows * stride;
}

function record(
  r: Recorder,
  operand: MatrixOperand,
  weight: GpuMatrix,
  dOut: { packed: View; scales: View },
  rows: number,
  out: View,
  outStride: number,
  lora: InputGradientLora | null,
  slices: number,
): void {
  const { rows: n, columns } = weight;
  const params = {
    rows,
    columns,
    n,
    c8: columns / 8,
    xStride8: packedWidth(n) / 8,
    xOffset8: 0,
    outStride4: outStride / 4,
    outOffset4: 0,
    mode: 0,
    weightScale: operand.scale,
    zStride4: (lora?.dz.stride ?? 0) / 4,
    aStride4: padded(columns) / 4,
    sliceOut4: slices > 1 ? (rows * outStride) / 4 : 0,
  };
  const views = [
    dOut.packed,
    dOut.scales,
    weight.parts[0]!.view,
    lora?.dz.view ?? dOut.scales,
    lora?.a ?? dOut.scales,
    out,
  ] as const;
  const constants = matrixMatmulNnLoraConstants(n / slices, lora?.width ?? 0);
  if (operand.emulated) r.dispatch(matrixPlainNn, views, params, plainNnGrid(rows, columns, slices), constants);
  else {
    const [x, y] = tallGrid(rows, columns);
    r.dispatch(matrixMatmulNnLora, views, params, [x, y, slices], constants);
  }
}
