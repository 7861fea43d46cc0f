// A fused linear layer with its LoRA as one product by subgroup matrices, over rows that are packed already.
// Not the packing (matrix-rows). Invariant: an output's bits depend on its row of x and z alone: which kernel runs is a
// matter of the number of rows.
import type { View } from '../gpu/buffers.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { fewConstants, fewKernel } from '../kernels/matrix-few.ts';
import { fewGrid, fewPlan, mostFewRows } from '../kernels/matrix-few-tiles.ts';
import { manyLaunch, matrixMatmulLoraConstants } from '../kernels/matrix-matmul-lora.ts';
import { matrixPlain, plainGrid } from '../kernels/matrix-plain.ts';
import { packedWidth } from '../kernels/matrix-tiles.ts';
import type { FusedGroup } from './fused-adapter.ts';
import type { Rows } from './linear.ts';
import type { MatrixOperand } from './matrix-weights.ts';
import type { GpuMatrix } from './weights.ts';

/** The LoRA term of a product: its rows z, and B as `fusedAdapter` holds it. */
export interface ProductLora {
  z: Rows;
  b: View;
  group: FusedGroup;
  rank: number;
  scale: number;
}

/**
 * Records out = (mode 2: out +) x W^T + scale * z B^T. x: `rows` packed rows of the matrix's width with their scales;
 * `weight` has one part.
 */
export function recordProduct(
  r: Recorder,
  operand: MatrixOperand,
  weight: GpuMatrix,
  x: { packed: View; scales: View },
  rows: number,
  out: Rows,
  mode: number,
  lora: ProductLora | null,
): void {
  const { rows: columns, columns: k } = weight;
  const params = {
    rows,
    columns,
    xStride8: packedWidth(k) / 8,
    xOffset8: 0,
    outStride4: out.stride / 4,
    outOffset4: 0,
    mode,
    weightScale: operand.scale,
    zStride4: (lora?.z.stride ?? 0) / 4,
    bStride4: lora?.group.bStride4 ?? 0,
    bOffset4: lora?.group.bOffset4 ?? 0,
    split1: lora?.group.split1 ?? columns,
    split2: lora?.group.split2 ?? columns,
    loraScale: lora?.scale ?? 0,
  };
  const rank = lora?.rank ?? 0;
  const views = [
    x.packed,
    x.scales,
    weight.parts[0]!.view,
    lora?.z.view ?? x.scales,
    lora?.b ?? x.scales,
    out.view,
  ] as const;
  if (operand.emulated) {
    r.dispatch(matrixPlain, views, params, plainGrid(rows, columns), matrixMatmulLoraConstants(k, rank));
  } else if (rows > mostFewRows) {
    const { kernel, grid, constants } = manyLaunch(rows, columns, k, rank);
    r.dispatch(kernel, views, params, grid, constants);
  } else {
    const plan = fewPlan(rows, columns, k);
    r.dispatch(fewKernel(plan.tile), views, params, fewGrid(plan.tile, columns), fewConstants(plan, k, rank));
  }
}
