// The base weights' products of a linear layer by subgroup matrices: twins of applyMatrix and applyTransposed.
// Not LoRA: its f32 products stay portable. Invariant: y = W x with one accumulator an output and k ascending, whatever
// the number of rows; activations are rounded to f16 by their own row alone.
import { foldedGrid } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { matmulMode } from '../kernels/matmul.ts';
import { launchOf } from '../kernels/matrix-cases.ts';
import { matrixMatmul } from '../kernels/matrix-matmul.ts';
import { matrixMatmulLow } from '../kernels/matrix-matmul-low.ts';
import { matrixMatmulNarrow } from '../kernels/matrix-matmul-narrow.ts';
import { matrixMatmulNn } from '../kernels/matrix-matmul-nn.ts';
import { matrixPack } from '../kernels/matrix-pack.ts';
import { forwardKernel, lowTile, packedWidth, tallConstants, tallGrid } from '../kernels/matrix-tiles.ts';
import { KernelError } from '../lib/errors.ts';
import type { Rows } from './linear.ts';
import type { MatrixOperand, PackedScratch } from './matrix-weights.ts';
import type { GpuMatrix } from './weights.ts';

const forwardKernels = { tall: matrixMatmul, low: matrixMatmulLow, narrow: matrixMatmulNarrow };

/** Rounds `rows` rows of `width` values to f16 into the operand's scratch; returns it and its row stride. */
export function packRows(r: Recorder, operand: MatrixOperand, x: Rows, rows: number, width: number) {
  const stride = packedWidth(width);
  const scratch: PackedScratch = operand.scratch(r, rows, stride);
  r.dispatch(
    matrixPack,
    [x.view, scratch.packed, scratch.scales],
    { rows, k4: Math.ceil(width / 4), xStride4: x.stride / 4, packed2: stride / 4 },
    foldedGrid(rows),
  );
  return { ...scratch, stride };
}

/** out[:, column...] = (mode) x W^T for every part of a matrix. */
export function applyMatrixProduct(
  r: Recorder,
  operand: MatrixOperand,
  weight: GpuMatrix,
  x: Rows,
  rows: number,
  out: Rows,
  mode: number,
): void {
  const { packed, scales, stride } = packRows(r, operand, x, rows, weight.columns);
  for (const part of weight.parts) {
    const kind = forwardKernel(rows, part.rows, weight.columns);
    const tile = kind === 'low' ? lowTile(rows, weight.columns) : kind;
    const { grid, constants } = launchOf(tile, rows, part.rows, weight.columns);
    r.dispatch(
      forwardKernels[kind],
      [packed, scales, part.view, out.view],
      {
        rows,
        columns: part.rows,
        xStride8: stride / 8,
        xOffset8: 0,
        outStride4: out.stride / 4,
        outOffset4: part.firstRow / 4,
        mode,
        weightScale: operand.scale,
        scale: 1,
      },
      grid,
      constants,
    );
  }
}

/**
 * dx = dOut W for every part of a matrix: the parts continue one sum over the output's columns.
 * @throws KernelError `ragged-part` if a part does not start at a multiple of 16 rows.
 */
export function applyMatrixTransposed(
  r: Recorder,
  operand: MatrixOperand,
  weight: GpuMatrix,
  dOut: Rows,
  rows: number,
  dx: Rows,
): void {
  const { packed, scales, stride } = packRows(r, operand, dOut, rows, weight.rows);
  for (const [i, part] of weight.parts.entries()) {
    if (part.firstRow % 16 !== 0) {
      const message = `multiplying by ${part.view.buffer.label}: it starts at row ${part.firstRow}; wanted a multiple of 16. Use the family portable.`;
      throw new KernelError('ragged-part', message);
    }
    r.dispatch(
      matrixMatmulNn,
      [packed, scales, part.view, dx.view],
      {
        rows,
        columns: weight.columns,
        n: part.rows,
        c8: weight.columns / 8,
        xStride8: stride / 8,
        xOffset8: part.firstRow / 8,
        outStride4: dx.stride / 4,
        outOffset4: 0,
        mode: i === 0 ? matmulMode.overwrite : matmulMode.continue,
        weightScale: operand.scale,
        scale: 1,
      },
      tallGrid(rows, weight.columns),
      tallConstants(part.rows),
    );
  }
}
