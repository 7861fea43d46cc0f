// The property that the matrix family rests on, checked on a device: an output's bits depend on its row of x and its row of
// w alone, whichever kernel and tile computes it, at whichever row of whichever batch.
// Not accuracy (qualify.ts). Invariant: bits are compared, of every output; it is a property of a driver, so it is checked
// and never assumed.
import { allocate, readU32, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { createRecorder, type Recorder } from '../gpu/recorder.ts';
import { packBf16, roundBf16, testValues } from './case-data.ts';
import { launchOf, testWeightScale } from './matrix-cases.ts';
import { fewConstants, fewKernel } from './matrix-few.ts';
import { type FewPlan, fewGrid, fewTiles } from './matrix-few-tiles.ts';
import { matrixMatmul } from './matrix-matmul.ts';
import {
  matrixMatmulLora,
  matrixMatmulLoraConstants,
  matrixMatmulLoraWide,
  matrixMatmulLoraWideConstants,
} from './matrix-matmul-lora.ts';
import { matrixMatmulLow } from './matrix-matmul-low.ts';
import { matrixMatmulNarrow } from './matrix-matmul-narrow.ts';
import { packReference } from './matrix-pack.ts';
import { type LowTile, packedWidth, tallGrid, wideGrid } from './matrix-tiles.ts';

/** One comparison with the tall kernel over all rows. */
export interface MatrixCanonicalResult {
  name: string;
  passed: boolean;
  /** Outputs that differ, of how many. */
  detail: string;
}

const rows = 128;
const columns = 200;
/** Terms: a multiple of what every tile takes in a round. */
const k = 1536;

/** Runs of rows that a kernel is given: from where, and how many at a time. */
const schedules: readonly { tile: LowTile | 'narrow' | 'tall'; first: number; count: number }[] = [
  { tile: 'narrow', first: 0, count: 1 },
  { tile: 'narrow', first: 61, count: 4 },
  { tile: 'narrow', first: 7, count: 64 },
  { tile: { TILE_M: 16, TILE_N: 64, TILE_K: 128 }, first: 3, count: 3 },
  { tile: { TILE_M: 16, TILE_N: 64, TILE_K: 64 }, first: 100, count: 16 },
  { tile: { TILE_M: 32, TILE_N: 64, TILE_K: 128 }, first: 33, count: 31 },
  { tile: { TILE_M: 64, TILE_N: 64, TILE_K: 64 }, first: 64, count: 64 },
  { tile: 'tall', first: 90, count: 1 },
  { tile: 'tall', first: 1, count: 127 },
];

/** Compares every kernel and tile of the forward product with the tall kernel over all rows, with and without LoRA. */
export async function matrixCanonicalChecks(gpu: Gpu): Promise<MatrixCanonicalResult[]> {
  const w = roundBf16(testValues(columns * k, 41, 0.05));
  const x = testValues(rows * k, 42);
  const weights = allocate(gpu, 'canonical.w', w.length * 2);
  const out = allocate(gpu, 'canonical.out', rows * columns * 4);
  const packedRows = allocate(gpu, 'canonical.x', rows * packedWidth(k) * 2);
  const scales = allocate(gpu, 'canonical.scales', rows * 4);
  const r = createRecorder(gpu);
  const views: View[] = [packedRows, scales, weights, out];
  upload(gpu, weights, packBf16(w));

  async function product(tile: LowTile | 'narrow' | 'tall', first: number, count: number): Promise<Uint32Array> {
    const packed = packReference(x.subarray(first * k, (first + count) * k), count, k, packedWidth(k));
    upload(gpu, packedRows, packed.packed);
    upload(gpu, scales, packed.scales);
    const { grid, constants } = launchOf(tile, count, columns, k);
    const kernel = tile === 'tall' ? matrixMatmul : tile === 'narrow' ? matrixMatmulNarrow : matrixMatmulLow;
    const params = {
      rows: count,
      columns,
      xStride8: packedWidth(k) / 8,
      xOffset8: 0,
      outStride4: columns / 4,
      outOffset4: 0,
      mode: 0,
      weightScale: testWeightScale(w),
      scale: 1,
    };
    r.clear(out);
    r.dispatch(kernel, views, params, grid, constants);
    r.submit();
    return readU32(gpu, out, count * columns);
  }

  try {
    const whole = await product('tall', 0, rows);
    const results: MatrixCanonicalResult[] = [];
    for (const { tile, first, count } of schedules) {
      const found = await product(tile, first, count);
      const wanted = whole.subarray(first * columns, (first + count) * columns);
      const differ = found.reduce((sum, word, i) => sum + (word === wanted[i] ? 0 : 1), 0);
      const shape = typeof tile === 'string' ? tile : `${tile.TILE_M}x${tile.TILE_N}x${tile.TILE_K}`;
      const name = `matrix product, ${shape}: rows ${first} to ${first + count - 1} against all ${rows}`;
      results.push({ name, passed: differ === 0, detail: `${differ} of ${found.length} outputs differ` });
    }
    for (const rank of [0, rank4]) results.push(...(await layerChecks(gpu, r, views, x, w, rank)));
    return results;
  } finally {
    for (const view of views) release(gpu, view);
  }
}

const rank4 = 16;

/** The linear layers of decoding against that of training: every tile of few rows, at several row positions. */
async function layerChecks(
  gpu: Gpu,
  r: Recorder,
  [packedRows, scales, weights, out]: readonly View[],
  x: Float32Array<ArrayBuffer>,
  w: Float32Array<ArrayBuffer>,
  rank: number,
): Promise<MatrixCanonicalResult[]> {
  const width = 3 * rank4;
  const z = testValues(rows * width, 43);
  const [zView, b] = [allocate(gpu, 'canonical.z', z.byteLength), allocate(gpu, 'canonical.b', rank4 * columns * 4)];
  upload(gpu, b, testValues(rank4 * columns, 44));

  async function layer(plan: FewPlan | 'tall' | 'wide', first: number, count: number): Promise<Uint32Array> {
    const packed = packReference(x.subarray(first * k, (first + count) * k), count, k, packedWidth(k));
    upload(gpu, packedRows!, packed.packed);
    upload(gpu, scales!, packed.scales);
    upload(gpu, zView, z.subarray(first * width, (first + count) * width));
    const params = {
      rows: count,
      columns,
      xStride8: packedWidth(k) / 8,
      xOffset8: 0,
      outStride4: columns / 4,
      outOffset4: 0,
      mode: 2,
      weightScale: testWeightScale(w),
      zStride4: width / 4,
      bStride4: columns / 4,
      bOffset4: 0,
      split1: 64,
      split2: 136,
      loraScale: 1.5,
    };
    upload(gpu, out!, testValues(rows * columns, 45).subarray(first * columns, (first + count) * columns));
    const bound = [packedRows!, scales!, weights!, zView, b, out!];
    if (plan === 'tall') {
      r.dispatch(matrixMatmulLora, bound, params, tallGrid(count, columns), matrixMatmulLoraConstants(k, rank));
    } else if (plan === 'wide') {
      const constants = matrixMatmulLoraWideConstants(k, rank);
      r.dispatch(matrixMatmulLoraWide, bound, params, wideGrid(count, columns), constants);
    } else {
      const { tile } = plan;
      r.dispatch(fewKernel(tile), bound, params, fewGrid(tile, columns), fewConstants(plan, k, rank));
    }
    r.submit();
    return readU32(gpu, out!, count * columns);
  }

  try {
    const whole = await layer('tall', 0, rows);
    const results: MatrixCanonicalResult[] = [];
    const compare = async (how: string, plan: FewPlan | 'wide', first: number, count: number) => {
      const found = await layer(plan, first, count);
      const wanted = whole.subarray(first * columns, (first + count) * columns);
      const differ = found.reduce((sum, word, i) => sum + (word === wanted[i] ? 0 : 1), 0);
      const name = `linear layer of rank ${rank}, ${how}: rows ${first} to ${first + count - 1} against all ${rows}`;
      results.push({ name, passed: differ === 0, detail: `${differ} of ${found.length} outputs differ` });
    };
    await compare('wide', 'wide', 0, rows);
    await compare('wide', 'wide', 61, 66);
    for (const tile of fewTiles) {
      for (const [first, count, late] of [
        [0, 1, false],
        [61, 4, true],
        [rows - tile.rows, tile.rows, false],
        [rows - tile.rows, tile.rows, true],
      ] as const) {
        await compare(`${tile.name}${late ? ' late' : ''}`, { tile, late }, first, count);
      }
    }
    return results;
  } finally {
    for (const view of [zView, b]) release(gpu, view);
  }
}
