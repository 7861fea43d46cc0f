// Products as a linear layer runs them, in the kernels of a family, and the best rate that these reach.
// Not another way to multiply: the program's own linear layer is what is called. Invariant: a product of few rows is
// measured on several matrices in turn, so that it streams its weights from memory, as decoding does.
import { allocate, release, upload, type View } from '../src/gpu/buffers.ts';
import type { Gpu, KernelFamily } from '../src/gpu/device.ts';
import { padded } from '../src/gpu/kernel.ts';
import type { Recorder } from '../src/gpu/recorder.ts';
import { matmulMode } from '../src/kernels/matmul.ts';
import { recordRows } from '../src/kernels/matrix-rows.ts';
import { packedWidth } from '../src/kernels/matrix-tiles.ts';
import { applyMatrix, type Rows } from '../src/model/linear.ts';
import { recordProduct } from '../src/model/matrix-product.ts';
import { matrixOperand, prepareMatrices, runsFused } from '../src/model/matrix-weights.ts';
import { type GpuMatrix, type GpuModel, groupNames } from '../src/model/weights.ts';
import { copyRate } from './copy.ts';
import { bestMs, type Effort } from './measure.ts';
import { type Call, createPassClock, sequenceUs } from './pass-clock.ts';
import type { BenchSettings } from './settings.ts';

export interface Limits {
  /** Bytes read and written by the fastest copy, GB/s. */
  copyGBs: number;
  /** The fastest of some square products of the family, GFLOP/s. */
  matmulGflops: number;
  matmulShape: string;
}

export interface MatmulFigure {
  /** The fused layer, `up` for one projection alone, or `head`. */
  layer: string;
  /** rows x columns x k. */
  shape: string;
  /** The product kernel's time by the device's clock, one dispatch after the other; where there is none, the layer's. */
  ms: number;
  /** The layer's time from call to call: with the packing of its input, where the family has one. */
  layerMs: number;
  gflops: number;
  ofLimit: number;
  /** Bytes of weights a second, and as a share of the copy bandwidth. */
  weightGBs: number;
  ofCopy: number;
}

export interface ProductShape {
  rows: number;
  columns: number;
  k: number;
}

/** Matrices that are multiplied in turn together exceed a GPU's second-level cache. */
const streamedBytes = 256 * 2 ** 20;

/** Fills a view by repeating a pattern. */
function fill(gpu: Gpu, view: View, pattern: Uint32Array<ArrayBuffer>): void {
  for (let at = 0; at < view.size; at += pattern.byteLength) {
    upload(gpu, view, pattern.subarray(0, Math.min(pattern.length, (view.size - at) / 4)), at);
  }
}

// Values take no part in the time, except that zeros draw less power than what a model holds.
const activations = () =>
  new Uint32Array(Float32Array.from({ length: 2 ** 20 }, (_, i) => ((i * 37) % 101) / 101 - 0.5).buffer);
const weights = () =>
  new Uint32Array(Uint16Array.from({ length: 2 ** 21 }, (_, i) => 0x3c00 + ((i * 53) % 257)).buffer);

/** A layer of the fused pass: packing and product as it records them, without an adapter. */
function recordFused(r: Recorder, weight: GpuMatrix, x: Rows, rows: number, out: Rows, spare: View): void {
  const operand = matrixOperand(weight)!;
  const { packed, scales } = operand.scratch(r, rows, packedWidth(weight.columns));
  const shape = { rows, columns: weight.columns, xStride: x.stride };
  recordRows(r, 'plain', x.view, x.view, packed, scales, shape, spare);
  recordProduct(r, operand, weight, { packed, scales }, rows, out, matmulMode.overwrite, null);
}

/**
 * Times x [rows, k] times w^T, w [columns, k] in bf16. `fused`: as the fused pass multiplies, where the family has one.
 * `emulate`: without subgroup matrices, for tests.
 */
export async function measureProduct(
  gpu: Gpu,
  r: Recorder,
  family: KernelFamily,
  { rows, columns, k }: ProductShape,
  effort: Effort,
  { fused = false, emulate = false } = {},
): Promise<{ ms: number; layerMs: number }> {
  const { software } = gpu.identity;
  const stride = padded(k);
  const bytes = columns * stride * 2;
  const copies = software || rows > 64 ? 1 : Math.max(1, Math.min(32, Math.ceil(streamedBytes / bytes)));
  const views: View[] = [];
  const take = (label: string, size: number, pattern: Uint32Array<ArrayBuffer> | null) => {
    const view = allocate(gpu, label, size);
    views.push(view);
    if (pattern) fill(gpu, view, pattern);
    return view;
  };
  let done = () => {};
  try {
    const pattern = weights();
    const matrices = Array.from({ length: copies }, (_, i): [string, GpuMatrix] => {
      const parts = [{ firstRow: 0, rows: columns, view: take(`bench.w${i}`, bytes, pattern) }];
      return [`bench.w${i}`, { rows: columns, columns: k, bf16: true, parts }];
    });
    if (family === 'matrix') done = (await prepareMatrices(gpu, matrices, emulate)).destroy;
    const x = { view: take('bench.x', rows * stride * 4, activations()), stride };
    const out = { view: take('bench.out', rows * padded(columns) * 4, null), stride: padded(columns) };
    const spare = take('bench.spare', 64, null);
    let turn = 0;
    const record = (to: Recorder) => {
      const [, weight] = matrices[turn++ % copies]!;
      if (fused && matrixOperand(weight)) recordFused(to, weight, x, rows, out, spare);
      else applyMatrix(to, weight, x, rows, out, matmulMode.overwrite);
    };
    const inner = software ? 1 : Math.max(20, copies);
    const layerMs = await bestMs(gpu, inner, effort, () => {
      record(r);
      r.submit();
    });
    if (!gpu.device.features.has('timestamp-query')) return { ms: layerMs, layerMs };
    const calls: Call[] = [];
    const keeping: Recorder = { ...r, dispatch: (...call) => calls.push(call) };
    for (let i = 0; i < inner; i++) record(keeping);
    const own = calls.filter(([{ name }]) => /matmul|matrix-(few|plain)/.test(name));
    const clock = createPassClock(gpu);
    try {
      // All of it first: the products read what the packing wrote.
      await sequenceUs(gpu, clock, calls, 1, 0);
      return { ms: (await sequenceUs(gpu, clock, own, 1, effort.warmMs)) / inner / 1000, layerMs };
    } finally {
      clock.destroy();
    }
  } finally {
    done();
    for (const view of views) release(gpu, view);
  }
}

/** The device's limits, measured: its copy bandwidth, and the family's best product. */
export async function measureLimits(gpu: Gpu, r: Recorder, family: KernelFamily, settings: Effort): Promise<Limits> {
  const { software } = gpu.identity;
  const copyGBs = await copyRate(gpu, settings);
  let matmulGflops = 0;
  let matmulShape = '';
  for (const size of software ? [256, 512] : [2048, 4096]) {
    const { ms } = await measureProduct(gpu, r, family, { rows: size, columns: size, k: size }, settings);
    const rate = (2 * size ** 3) / ms / 1e6;
    if (rate <= matmulGflops) continue;
    matmulGflops = rate;
    matmulShape = `${size}x${size}x${size}`;
  }
  return { copyGBs, matmulGflops, matmulShape };
}

/** The products of a forward pass: each fused layer at a batch of decoding and at many rows, one of its parts, and the head. */
export async function matmulFigures(
  gpu: Gpu,
  r: Recorder,
  family: KernelFamily,
  model: GpuModel,
  settings: BenchSettings,
  limits: Limits,
): Promise<MatmulFigure[]> {
  const { hiddenSize, vocabSize } = model.architecture;
  const layers = groupNames.map((name) => {
    const { weight } = model.layers[0]!.groups[name];
    return { layer: name as string, columns: weight.rows, k: weight.columns };
  });
  layers.push({ layer: 'up', columns: Math.ceil(layers[2]!.columns / 2), k: hiddenSize });
  layers.push({ layer: 'head', columns: vocabSize, k: hiddenSize });
  const figures: MatmulFigure[] = [];
  const decodeRows = settings.batches.includes(settings.group)
    ? settings.group
    : (settings.batches.filter((batch) => batch <= 16).at(-1) ?? 1);
  for (const rows of [decodeRows, settings.kernelRows]) {
    for (const { layer, columns, k } of layers) {
      // The head of a large vocabulary in many rows is done in chunks, which the training step measures.
      const bytes = columns * padded(k) * 2;
      if (columns * rows * 4 > 2 ** 30 || bytes > gpu.identity.limits.maxStorageBufferBindingSize) continue;
      const effort = { warmMs: settings.warmMs, budgetMs: settings.budgetMs / 10 };
      const how = { fused: layer !== 'head' && runsFused(gpu, model) };
      const { ms, layerMs } = await measureProduct(gpu, r, family, { rows, columns, k }, effort, how);
      const gflops = (2 * rows * columns * k) / ms / 1e6;
      const weightGBs = bytes / ms / 1e6;
      figures.push({
        layer,
        shape: `${rows}x${columns}x${k}`,
        ms,
        layerMs,
        gflops,
        ofLimit: gflops / limits.matmulGflops,
        weightGBs,
        ofCopy: weightGBs / limits.copyGBs,
      });
    }
  }
  return figures;
}
