// The property that the family's attention rests on, checked on a device: a row's bits depend on its q and its slot's
// cache alone, whether it is computed alone, beside rows of other slots, or in a tile of rows.
// Not accuracy (qualify.ts). Invariant: bits of every output are compared.
import { allocate, readU32, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import type { KernelArray } from '../gpu/kernel.ts';
import { createRecorder } from '../gpu/recorder.ts';
import { flashRows, flashTiles, recordAttentionFlash } from './attention-flash.ts';
import { partialWidth, recordAttentionPartial } from './attention-partial.ts';
import { type CachedShape, cachedBatch, chunkKeys } from './cached-attention-cases.ts';
import { recordRows } from './matrix-rows.ts';
import { packedWidth } from './matrix-tiles.ts';

export interface AttentionCanonicalResult {
  name: string;
  passed: boolean;
  /** Outputs that differ, of how many. */
  detail: string;
}

/** Rows that decode computes together: all of them, then some alone and in small batches. */
function schedules(rows: number): number[][] {
  const all = Array.from({ length: rows }, (_, r) => r);
  const some = [0, Math.floor(rows / 2), rows - 1];
  return [all, ...some.map((r) => [r]), all.filter((r) => r % 7 === 3).reverse()];
}

/** Compares attention-flash in each tile that fits with attention-partial, joined by matrix-rows, on a batch of runs. */
export async function attentionCanonicalChecks(gpu: Gpu, shape: CachedShape): Promise<AttentionCanonicalResult[]> {
  const batch = cachedBatch(shape);
  const { rows, heads, kvHeads, headDim, cacheLength } = batch;
  const width = heads * headDim;
  const chunks = cacheLength / chunkKeys + 1;
  const views: View[] = [];
  const make = (name: string, data: KernelArray | number): View => {
    const view = allocate(gpu, `attention.${name}`, typeof data === 'number' ? data * 4 : data.byteLength);
    views.push(view);
    if (typeof data !== 'number') upload(gpu, view, data);
    return view;
  };
  const r = createRecorder(gpu);
  const cache = { k: make('k', batch.k), v: make('v', batch.v), scales: make('scales', batch.scales) };
  const q = make('q', rows * width);
  const out = make('out', rows * width);
  const lse = make('lse', rows * heads);
  const meta = make('meta', rows * 2);
  const partials = make('partials', rows * partialWidth(heads, headDim, chunks));
  const own = { rows, heads, kvHeads, headDim, cacheLength, qStride: width, outStride: width };

  // Joined rows as matrix-rows sees them before they are rounded: A is the identity, so z is the row, to the bit.
  const identity = new Float32Array(width * width);
  for (let i = 0; i < width; i++) identity[i * (width + 1)] = 1;
  const a = make('a', identity);
  const packed = make('packed', (rows * packedWidth(width)) / 2);
  const rowScales = make('rowScales', rows);

  async function flash(tileRows: 16 | 32): Promise<Uint32Array> {
    const table = flashTiles(batch.meta, tileRows);
    upload(gpu, q, batch.q);
    r.clear(out);
    recordAttentionFlash(r, { tiles: make('tiles', table), q, ...cache, out, lse }, own, table.length / 4, tileRows);
    r.submit();
    return readU32(gpu, out, rows * width);
  }

  // A row as the projection would leave it if the heads came out as they stand in the batch: no norm, no turn.
  const rawStride = width + 2 * kvHeads * headDim;
  const raw = make('raw', rows * rawStride);
  const rope = make(
    'rope',
    Float32Array.from({ length: cacheLength * headDim }, (_, i) => 1 - (i % 2)),
  );
  const rawOf = (row: number) => {
    const [slot, position] = [batch.meta[row * 2]!, batch.meta[row * 2 + 1]!];
    const heads2 = [batch.keys, batch.values].flatMap((from) =>
      Array.from({ length: kvHeads }, (_, kv) => {
        const at = ((slot * kvHeads + kv) * cacheLength + position) * headDim;
        return [...from.subarray(at, at + headDim)];
      }).flat(),
    );
    return Float32Array.from([...batch.q.subarray(row * width, (row + 1) * width), ...heads2]);
  };

  /** Rows of different slots in one dispatch: as many of the rest as there are. */
  async function decodeSome(some: number[]): Promise<Uint32Array> {
    for (const [i, row] of some.entries()) {
      upload(gpu, raw, rawOf(row), i * rawStride * 4);
      upload(gpu, meta, batch.meta.subarray(row * 2, row * 2 + 2), i * 8);
    }
    r.clear(out);
    const decoded = { ...own, rows: some.length, rawStride, eps: 0, norm: false };
    recordAttentionPartial(r, { meta, raw, gain: rope, rope, ...cache, partials }, decoded, chunks);
    const lora = { a, width, z: out, zStride: width };
    const shape = { rows: some.length, columns: width, xStride: 0, lora, join: { meta, chunks, headDim } };
    recordRows(r, 'joined', partials, q, packed, rowScales, shape, lse);
    r.submit();
    return readU32(gpu, out, some.length * width);
  }

  async function decode(chosen: number[]): Promise<Uint32Array> {
    const found = new Uint32Array(chosen.length * width);
    const left = new Set(chosen.keys());
    while (left.size > 0) {
      const bySlot = new Map([...left].reverse().map((i) => [batch.meta[chosen[i]! * 2]!, i]));
      const some = [...bySlot.values()];
      const bits = await decodeSome(some.map((i) => chosen[i]!));
      for (const [n, i] of some.entries()) {
        found.set(bits.subarray(n * width, (n + 1) * width), i * width);
        left.delete(i);
      }
    }
    return found;
  }

  try {
    const most = flashRows(headDim, gpu.identity.limits.maxComputeWorkgroupStorageSize);
    const tall = await flash(most);
    const results: AttentionCanonicalResult[] = [];
    const compare = (name: string, found: Uint32Array, wanted: (i: number) => number) => {
      const differ = found.reduce((sum, word, i) => sum + (word === wanted(i) ? 0 : 1), 0);
      results.push({ name, passed: differ === 0, detail: `${differ} of ${found.length} outputs differ` });
    };
    const stem = `attention, ${heads}/${kvHeads} heads of ${headDim}`;
    if (most === 32) compare(`${stem}: tiles of 16 rows against 32`, await flash(16), (i) => tall[i]!);
    for (const chosen of schedules(rows)) {
      const found = await decode(chosen);
      const wanted = (i: number) => tall[chosen[Math.floor(i / width)]! * width + (i % width)]!;
      compare(`${stem}: ${chosen.length} single rows from ${chosen[0]} against tiles of ${most}`, found, wanted);
    }
    return results;
  } finally {
    for (const view of views) release(gpu, view);
  }
}
