// What a bf16 matrix needs to serve the subgroup-matrix products: a power-of-two scale, found on the device, and room for
// packed activations. The weights stay packed bf16.
// Invariant: the scale depends on the matrix alone, and elements that f16 cannot hold exactly under it are counted and
// reported.
import { allocate, readU32, release, subview, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { ceilDiv, padded } from '../gpu/kernel.ts';
import { createRecorder, type Recorder } from '../gpu/recorder.ts';
import { matrixFeature } from '../kernels/matrix-index.ts';
import { rowsStorage } from '../kernels/matrix-rows.ts';
import { matrixWidth, tallTile } from '../kernels/matrix-tiles.ts';
import { matrixWeightScan, shiftBias } from '../kernels/matrix-weight-scan.ts';
import { DeviceError, ModelFileError } from '../lib/errors.ts';
import { type GpuMatrix, type GpuModel, groupNames } from './weights.ts';

/** Packed rows of one product: the buffers grow with the largest, each recorder has its own. */
export interface PackedScratch {
  packed: View;
  scales: View;
}

/** A matrix of the family. */
export interface MatrixOperand {
  /** 2^shift: weights are staged as f16 times this. */
  scale: number;
  /** The device has no subgroup matrices: products in the plain kernels, for tests. */
  emulated: boolean;
  /** Buffers for `rows` packed rows of `width` elements; the same ones until a product needs larger ones. */
  scratch(r: Recorder, rows: number, width: number): PackedScratch;
}

/** How a model's matrices came out. */
export interface MatrixReport {
  /** Matrices that the family's kernels multiply, and those that stay portable (f32, or of an unsuitable width). */
  matrices: number;
  portable: string[];
  /** Weights in the former, and how many of them f16 cannot hold exactly under their matrix's scale. */
  elements: number;
  inexact: number;
  /** The matrices with such weights. */
  worst: { name: string; inexact: number; largest: number }[];
}

const operands = new WeakMap<GpuMatrix, MatrixOperand>();

/** The operand of a matrix of the family; undefined for a portable one. */
export function matrixOperand(weight: GpuMatrix): MatrixOperand | undefined {
  return operands.get(weight);
}

/**
 * Whether a model runs the fused pass: every matrix of its layers is of the family and in one part, and heads and rows
 * have widths that its kernels take. It follows from model and adapter alone; other models run the portable pass with
 * the family's products.
 */
export function runsFused(gpu: Gpu, model: GpuModel): boolean {
  const { headDim, hiddenSize, intermediateSize, heads, kvHeads } = model.architecture;
  const widest = Math.max(hiddenSize, intermediateSize, heads * headDim);
  const room = gpu.identity.limits.maxComputeWorkgroupStorageSize;
  return (
    headDim % 16 === 0 &&
    headDim <= 128 &&
    heads / kvHeads <= 8 &&
    Math.max(rowsStorage(widest), rowsStorage(heads * headDim, headDim)) <= room &&
    model.layers.every(({ groups }) =>
      groupNames.every((name) => operands.has(groups[name].weight) && groups[name].weight.parts.length === 1),
    )
  );
}

function suits(weight: GpuMatrix): boolean {
  return (
    weight.bf16 &&
    weight.columns % matrixWidth === 0 &&
    weight.parts.every(({ firstRow }) => firstRow % matrixWidth === 0)
  );
}

function createScratch(gpu: Gpu, kept: View[]): MatrixOperand['scratch'] {
  const byRecorder = new WeakMap<Recorder, PackedScratch>();
  const take = (label: string, bytes: number) => {
    const view = allocate(gpu, label, bytes);
    kept.push(view);
    return view;
  };
  return (r, rows, width) => {
    const tall = ceilDiv(rows, tallTile) * tallTile;
    const known = byRecorder.get(r);
    if (known && known.packed.size >= tall * width * 2 && known.scales.size >= tall * 4) return known;
    // Commands recorded before still read the smaller buffers, so they live until the model goes.
    const made = {
      packed: take('matrix.packed', Math.max(tall * width * 2, known?.packed.size ?? 0)),
      scales: take('matrix.scales', Math.max(tall * 4, known?.scales.size ?? 0)),
    };
    byRecorder.set(r, made);
    return made;
  };
}

const headName = 'head';

function namedMatrices(model: GpuModel): [string, GpuMatrix][] {
  const layers = model.layers.flatMap((layer, i) =>
    groupNames.map((name): [string, GpuMatrix] => [`layers.${i}.${name}`, layer.groups[name].weight]),
  );
  return [[headName, model.head], ...layers];
}

const words = (weight: GpuMatrix, rows: number) => (rows * padded(weight.columns)) / 2;

/** Matrices as operands of the family, and what came out. `destroy` frees what products needed beside them. */
export interface PreparedMatrices {
  report: MatrixReport;
  destroy(): void;
}

/**
 * Makes named matrices operands of the family, where their shapes suit it. All are scanned in two passes with a read-back
 * each: the largest weights, then the weights that their scale leaves inexact.
 * `emulate`: without subgroup matrices, by slow kernels with other bits, for tests.
 * @throws DeviceError `no-subgroup-matrix`, ModelFileError `non-finite-weight`.
 */
export async function prepareMatrices(
  gpu: Gpu,
  named: readonly (readonly [string, GpuMatrix])[],
  emulate = false,
): Promise<PreparedMatrices> {
  if (!emulate && !gpu.device.features.has(matrixFeature)) {
    throw new DeviceError(
      'no-subgroup-matrix',
      `choosing the kernel family matrix: ${gpu.identity.device} was opened without ${matrixFeature}; wanted f16 subgroup ` +
        'matrices. Use the family portable.',
    );
  }
  const suited = named.filter(([, weight]) => suits(weight));
  const report: MatrixReport = {
    matrices: suited.length,
    portable: named.filter(([, weight]) => !suits(weight)).map(([name]) => name),
    elements: suited.reduce((sum, [, { rows, columns }]) => sum + rows * columns, 0),
    inexact: 0,
    worst: [],
  };
  const kept: View[] = [];
  const scratch = createScratch(gpu, kept);
  const r = createRecorder(gpu);
  // Two words a matrix, a binding's alignment apart.
  const stride = Math.max(8, gpu.identity.limits.minStorageBufferOffsetAlignment);
  const tally = allocate(gpu, 'matrix.tally', stride * Math.max(1, suited.length));
  const tallies = suited.map((_, i) => subview(gpu, tally, i * stride, 8));
  const scan = (i: number, count: boolean, shift: number) => {
    const weight = suited[i]![1];
    for (const part of weight.parts) {
      const params = { words: words(weight, part.rows), shift: shift + shiftBias };
      r.dispatch(matrixWeightScan, [part.view, tallies[i]!], params, [1024, 1, 1], { COUNT: count ? 1 : 0 });
    }
  };
  const read = async (word: 0 | 1) => {
    r.submit();
    const all = await readU32(gpu, tally);
    return suited.map((_, i) => all[(i * stride) / 4 + word]!);
  };
  try {
    for (const i of suited.keys()) scan(i, false, 0);
    const tops = await read(0);
    for (const [i, [name, weight]] of suited.entries()) {
      const exponent = tops[i]! >>> 7;
      if (exponent === 255) {
        const message = `preparing ${name} for subgroup matrices: a weight is NaN or infinite; wanted finite ones. Check the checkpoint.`;
        throw new ModelFileError('non-finite-weight', message);
      }
      // The largest weight comes into [2^14, 2^15); a factor must be an f32, and so must its inverse.
      const shift = tops[i] === 0 ? 0 : Math.min(126, 14 - (exponent - 127));
      operands.set(weight, { scale: 2 ** shift, emulated: emulate, scratch });
      scan(i, true, shift);
    }
    for (const [i, inexact] of (await read(1)).entries()) {
      report.inexact += inexact;
      const largest = new Float32Array(Uint32Array.of(tops[i]! << 16).buffer)[0]!;
      if (inexact > 0) report.worst.push({ name: suited[i]![0], inexact, largest });
    }
  } finally {
    release(gpu, tally);
  }
  const destroy = () => {
    for (const view of kept) release(gpu, view);
  };
  return { report, destroy };
}

/**
 * Makes a loaded model use the family in every linear layer and the head. Returns the model (to be destroyed instead of
 * the one given) and a report. @throws what `prepareMatrices` throws.
 */
export async function useMatrixFamily(
  gpu: Gpu,
  model: GpuModel,
  emulate = false,
): Promise<{ model: GpuModel; report: MatrixReport }> {
  const { report, destroy } = await prepareMatrices(gpu, namedMatrices(model), emulate);
  const both = () => {
    model.destroy();
    destroy();
  };
  return { model: { ...model, destroy: both }, report };
}
