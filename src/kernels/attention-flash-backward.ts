// The gradients of attention over a 16-bit cache: of queries, and of keys and values, as if they were not rounded.
// Invariant: no atomics; every sum has one fixed order, over a row's keys or a run's rows, and other runs do not matter.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, constantsOnce, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { type Bounded, backwardBatch } from './attention-backward-cases.ts';
import { flashConstants, flashTiles } from './attention-flash.ts';
import type { CachedAttentionShape } from './attention-partial.ts';
import { type CachedShape, runShapes } from './cached-attention-cases.ts';

/** Keys of a workgroup of attention-flash-dkv. */
const keyTile = 32;

const constantsOf = constantsOnce<number>();

const dkvConstants = (rows: number, group: number, headDim: number) =>
  constantsOf((group * 512 + headDim) * 64 + rows, () => ({ ROWS: rows, GROUP: group, D8: headDim / 8 }));

const rowSumConstants = (headDim: number) => constantsOf(-headDim, () => ({ LANES: headDim / 8 }));

const rowSumsGrid = (rows: number, heads: number) => foldedGrid(ceilDiv(rows * heads, 4));

/** The runs of a batch for attention-flash-dkv, one a slot: u32 [runs, 4] as flashTiles, of any length. */
export function flashRuns(meta: Uint32Array): Uint32Array<ArrayBuffer> {
  return flashTiles(meta, meta.length);
}

const cached = new Map<CachedShape, ReturnType<typeof backwardBatch>>();

/** A batch of each shape, made once: three kernels share its gradients. */
function batchOf(shape: CachedShape): ReturnType<typeof backwardBatch> {
  let batch = cached.get(shape);
  if (!batch) cached.set(shape, (batch = backwardBatch(shape)));
  return batch;
}

function rowSumsCase(shape: CachedShape): KernelCase {
  const { rows, heads, headDim, dOut, out, lse, delta } = batchOf(shape);
  const values = new Float64Array(rows * heads * 2);
  const bounds = new Float64Array(values.length);
  for (let i = 0; i < rows * heads; i++) {
    values.set([lse[i]!, delta.values[i]!], i * 2);
    bounds[i * 2 + 1] = delta.bounds[i]!;
  }
  return {
    name: `${rows} rows, ${heads} heads of ${headDim}`,
    constants: rowSumConstants(headDim),
    params: { rows, heads, outStride4: (heads * headDim) / 4 },
    grid: rowSumsGrid(rows, heads),
    inputs: { dOut, out, lse },
    expected: { stats: { values, bounds } },
  };
}

function gradientCase(shape: CachedShape, tileRows: number, which: 'dq' | 'dkv'): KernelCase {
  const batch = batchOf(shape);
  const { rows, heads, kvHeads, headDim, cacheLength, q, k, v, scales, dOut, stats, meta } = batch;
  const params = {
    heads,
    kvHeads,
    qStride4: (heads * headDim) / 4,
    outStride4: (heads * headDim) / 4,
    cacheLength,
    kvStride4: (kvHeads * headDim) / 4,
    scale: batch.scale,
  };
  const name = `${rows} rows up to ${cacheLength} in tiles of ${tileRows}, ${heads}/${kvHeads} heads of ${headDim}`;
  const inputs = { q, k, v, scales, dOut, stats };
  if (which === 'dq') {
    const tiles = flashTiles(meta, tileRows);
    return {
      name,
      constants: flashConstants(tileRows, heads / kvHeads, headDim),
      params,
      grid: [heads, tiles.length / 4, 1],
      inputs: { ...inputs, tiles },
      expected: { dq: batch.dq },
    };
  }
  const runs = flashRuns(meta);
  return {
    name,
    constants: dkvConstants(tileRows, heads / kvHeads, headDim),
    params,
    // One tile more than any run has keys for: a bound, not a count.
    grid: [kvHeads * (runs.length / 4), cacheLength / keyTile + 1, 1],
    inputs: { ...inputs, runs },
    expected: { dk: untouched(batch.dk, batch, runs), dv: untouched(batch.dv, batch, runs) },
  };
}

/** Gradients with NaN where no run's last row reaches: nothing may be written there. */
function untouched(gradient: Bounded, batch: ReturnType<typeof backwardBatch>, runs: Uint32Array): Bounded {
  const { kvHeads, headDim, cacheLength, slots } = batch;
  const values = gradient.values.slice();
  const ends = new Array<number>(slots).fill(0);
  for (let i = 0; i < runs.length; i += 4) ends[runs[i + 2]!] = runs[i + 1]! + runs[i + 3]!;
  for (let slot = 0; slot < slots; slot++) {
    const start = (slot * cacheLength + ends[slot]!) * kvHeads * headDim;
    values.fill(Number.NaN, start, (slot + 1) * cacheLength * kvHeads * headDim);
  }
  return { values, bounds: gradient.bounds };
}

const gradientInputs = [
  { name: 'q', access: 'read' },
  { name: 'k', access: 'read' },
  { name: 'v', access: 'read' },
  { name: 'scales', access: 'read' },
  { name: 'dOut', access: 'read' },
  { name: 'stats', access: 'read' },
] as const;

const gradientCases = (which: 'dq' | 'dkv') =>
  [16, 32].flatMap((tileRows) => runShapes.map((shape) => gradientCase(shape, tileRows, which)));

export const attentionRowSums: QualifiedKernel = {
  name: 'attention-row-sums',
  bindings: [
    { name: 'dOut', access: 'read' },
    { name: 'out', access: 'read' },
    { name: 'lse', access: 'read' },
    { name: 'stats', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['heads', 'u32'],
    ['outStride4', 'u32'],
  ],
  constants: { LANES: 16 },
  cases: () => runShapes.map(rowSumsCase),
};

export const attentionFlashDq: QualifiedKernel = {
  name: 'attention-flash-dq',
  bindings: [{ name: 'tiles', access: 'read' }, ...gradientInputs, { name: 'dq', access: 'read_write' }],
  params: [
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['qStride4', 'u32'],
    ['outStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['scale', 'f32'],
  ],
  constants: { ROWS: 32, GROUP: 2, D8: 16, OUT_GROUPS: 8 },
  cases: () => gradientCases('dq'),
};

export const attentionFlashDkv: QualifiedKernel = {
  name: 'attention-flash-dkv',
  bindings: [
    { name: 'runs', access: 'read' },
    ...gradientInputs,
    { name: 'dk', access: 'read_write' },
    { name: 'dv', access: 'read_write' },
  ],
  params: [
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['qStride4', 'u32'],
    ['outStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['kvStride4', 'u32'],
    ['scale', 'f32'],
  ],
  constants: { ROWS: 32, GROUP: 2, D8: 16 },
  cases: () => gradientCases('dkv'),
};

/** The kernels of the backward pass. */
export const flashBackwardKernels: readonly QualifiedKernel[] = [attentionRowSums, attentionFlashDq, attentionFlashDkv];

/** Buffers of the backward pass; see recordAttentionFlashBackward. */
export interface FlashBackwardViews {
  tiles: View;
  runs: View;
  q: View;
  k: View;
  v: View;
  scales: View;
  out: View;
  lse: View;
  dOut: View;
  stats: View;
  dq: View;
  dk: View;
  dv: View;
}

/** How many tiles and runs the tables hold, and the largest position of a row plus one. */
export interface FlashCounts {
  tiles: number;
  runs: number;
  keys: number;
}

/**
 * Records the gradients of attention of a batch of runs, one a slot. Views: tiles as for recordAttentionFlash with the
 * same `tileRows`, runs from flashRuns, dOut f32 [rows, outStride], stats f32 [rows, heads, 2] (written here), dq f32
 * [rows, qStride], dk and dv f32 [slots, cacheLength, kvStride], where every position up to a run's last is written.
 */
export function recordAttentionFlashBackward(
  r: Recorder,
  views: FlashBackwardViews,
  shape: CachedAttentionShape & { kvStride: number },
  counts: FlashCounts,
  tileRows: 32 | 16,
): void {
  const { rows, heads, kvHeads, headDim, cacheLength, qStride, outStride, kvStride } = shape;
  const { tiles, runs, q, k, v, scales, out, lse, dOut, stats, dq, dk, dv } = views;
  const params = {
    rows,
    heads,
    kvHeads,
    qStride4: qStride / 4,
    outStride4: outStride / 4,
    cacheLength,
    kvStride4: kvStride / 4,
    scale: 1 / Math.sqrt(headDim),
  };
  const shared = [q, k, v, scales, dOut, stats];
  const group = heads / kvHeads;
  const sums = rowSumConstants(headDim);
  r.dispatch(attentionRowSums, [dOut, out, lse, stats], params, rowSumsGrid(rows, heads), sums);
  const dqConstants = flashConstants(tileRows, group, headDim);
  r.dispatch(attentionFlashDq, [tiles, ...shared, dq], params, [heads, counts.tiles, 1], dqConstants);
  r.dispatch(
    attentionFlashDkv,
    [runs, ...shared, dk, dv],
    params,
    [kvHeads * counts.runs, ceilDiv(counts.keys, keyTile), 1],
    dkvConstants(tileRows, group, headDim),
  );
}
