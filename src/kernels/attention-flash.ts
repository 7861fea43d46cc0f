// Attention of runs of rows over a 16-bit cache: training, prefill and reference. Not for single rows, which
// attention-partial cuts finer. Invariant: a row's bits depend on its q and its slot's cache alone, and are those of
// attention-partial and matrix-rows.

import type { View } from '../gpu/buffers.ts';
import { ceilDiv, constantsOnce, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { KernelError } from '../lib/errors.ts';
import { mergeError } from './attention-join.ts';
import type { CachedAttentionShape } from './attention-partial.ts';
import { attend, type CachedShape, cachedBatch, chunkKeys, runShapes } from './cached-attention-cases.ts';
import { unit } from './case-data.ts';

/** Rows of the largest tile that fits an adapter: for headDim 128, 32 rows take 44 KB and 16 take 31 KB. */
export function flashRows(headDim: number, workgroupBytes: number): 32 | 16 {
  const found = ([32, 16] as const).find((rows) => headDim <= 128 && flashStorage(rows, headDim) <= workgroupBytes);
  if (found) return found;
  throw new KernelError(
    'workgroup-memory',
    `choosing a tile for attention: heads of ${headDim} take ${flashStorage(16, headDim)} bytes of workgroup memory; ` +
      `wanted at most 128 elements and ${workgroupBytes} bytes. Use the portable kernels.`,
  );
}

/** Bytes of workgroup memory of attention-flash, or of attention-flash-dkv where that takes more. */
export function flashStorage(rows: number, headDim: number): number {
  const shared = rows * (headDim / 4 + 1) + chunkKeys * (headDim / 8 + 1);
  const forward = (shared + rows * 17 + 32) * 16 + rows * 12;
  const backward = (shared + rows * 18 + 16) * 16 + rows * 8;
  return Math.max(forward, backward);
}

const once = constantsOnce<number>();

/** Pipeline constants of a tile; one object for each combination. headDim is a multiple of 16, at most 128. */
export function flashConstants(rows: number, group: number, headDim: number) {
  return once((group * 512 + headDim) * 64 + rows, () => {
    // Of 128 threads, headDim / 8 share a row: groups of them, a power of two.
    const groups = Math.min(rows, 2 ** Math.floor(Math.log2(1024 / headDim)));
    return { ROWS: rows, GROUP: group, D8: headDim / 8, OUT_GROUPS: groups };
  });
}

/**
 * Cuts a batch into tiles of at most `rows` rows of a slot at consecutive positions, the longest first: u32 [tiles, 4]
 * of first row, rows, slot, position of the first row. A run's tiles start at its first row.
 */
export function flashTiles(meta: Uint32Array, rows: number): Uint32Array<ArrayBuffer> {
  const tiles: [number, number, number, number][] = [];
  let last: [number, number, number, number] | null = null;
  for (let r = 0; r < meta.length / 2; r++) {
    const [slot, position] = [meta[r * 2]!, meta[r * 2 + 1]!];
    if (last && last[1] < rows && last[2] === slot && last[3] + last[1] === position) last[1] += 1;
    else tiles.push((last = [r, 1, slot, position]));
  }
  tiles.sort((a, b) => b[3] + b[1] - (a[3] + a[1]) || a[0] - b[0]);
  return Uint32Array.from(tiles.flat());
}

function makeCase(shape: CachedShape, tileRows: number): KernelCase {
  const batch = cachedBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength } = batch;
  const out = { values: new Float64Array(rows * heads * headDim), bounds: new Float64Array(rows * heads * headDim) };
  const lse = { values: new Float64Array(rows * heads), bounds: new Float64Array(rows * heads) };
  for (let r = 0; r < rows; r++) {
    const keys = batch.meta[r * 2 + 1]! + 1;
    for (let h = 0; h < heads; h++) {
      const whole = attend(batch, r, h, 0, keys);
      const at = r * heads + h;
      const joins = mergeError(ceilDiv(keys, chunkKeys), mergeRange(batch, r, h, keys));
      const relative = whole.lBound / whole.l + 2 * joins;
      lse.values[at] = whole.m + Math.log(whole.l);
      lse.bounds[at] = whole.mBound + relative + 2 ** -20 + 4 * unit * Math.abs(lse.values[at]!);
      for (let d = 0; d < headDim; d++) {
        out.values[at * headDim + d] = whole.o[d]! / whole.l;
        const size = whole.size[d]! / whole.l;
        out.bounds[at * headDim + d] = whole.oBound[d]! / whole.l + size * (relative + 8 * unit) + 1e-36;
      }
    }
  }
  const tiles = flashTiles(batch.meta, tileRows);
  return {
    name: `${rows} rows up to ${cacheLength} in tiles of ${tileRows}, ${heads}/${kvHeads} heads of ${headDim}`,
    constants: flashConstants(tileRows, heads / kvHeads, headDim),
    params: {
      heads,
      kvHeads,
      qStride4: (heads * headDim) / 4,
      outStride4: (heads * headDim) / 4,
      cacheLength,
      scale: batch.scale,
    },
    grid: [heads, tiles.length / 4, 1],
    inputs: { tiles, q: batch.q, k: batch.k, v: batch.v, scales: batch.scales },
    expected: { out, lse },
  };
}

/** How far a row's largest scores of chunks lie apart. */
function mergeRange(batch: ReturnType<typeof cachedBatch>, r: number, h: number, keys: number): number {
  const tops = [];
  for (let first = 0; first < keys; first += chunkKeys)
    tops.push(attend(batch, r, h, first, Math.min(keys, first + chunkKeys)).m);
  return Math.max(...tops) - Math.min(...tops);
}

export const attentionFlash: QualifiedKernel = {
  name: 'attention-flash',
  bindings: [
    { name: 'tiles', access: 'read' },
    { name: 'q', access: 'read' },
    { name: 'k', access: 'read' },
    { name: 'v', access: 'read' },
    { name: 'scales', access: 'read' },
    { name: 'out', access: 'read_write' },
    { name: 'lse', access: 'read_write' },
  ],
  params: [
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['qStride4', 'u32'],
    ['outStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['scale', 'f32'],
  ],
  constants: { ROWS: 32, GROUP: 2, D8: 16, OUT_GROUPS: 8 },
  cases: () => [...runShapes.map((shape) => makeCase(shape, 16)), ...runShapes.map((shape) => makeCase(shape, 32))],
};

/** Buffers of attention over runs of rows; see recordAttentionFlash. */
export interface FlashViews {
  /** u32 [tiles, 4], from flashTiles. */
  tiles: View;
  q: View;
  k: View;
  v: View;
  scales: View;
  out: View;
  lse: View;
}

/**
 * Records attention of a batch of runs. `tiles`: how many tiles of at most `tileRows` rows (flashRows) the tile buffer
 * holds. Views: q f32 [rows, qStride], k, v, scales as `cache-rows` writes them, out f32 [rows, outStride], lse f32
 * [rows, heads].
 */
export function recordAttentionFlash(
  r: Recorder,
  views: FlashViews,
  shape: CachedAttentionShape,
  tiles: number,
  tileRows: 32 | 16,
): void {
  const { heads, kvHeads, headDim, cacheLength, qStride, outStride } = shape;
  r.dispatch(
    attentionFlash,
    [views.tiles, views.q, views.k, views.v, views.scales, views.out, views.lse],
    {
      heads,
      kvHeads,
      qStride4: qStride / 4,
      outStride4: outStride / 4,
      cacheLength,
      scale: 1 / Math.sqrt(headDim),
    },
    [heads, tiles, 1],
    flashConstants(tileRows, heads / kvHeads, headDim),
  );
}
