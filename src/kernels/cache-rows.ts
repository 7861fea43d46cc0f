// Rows of q, k and v to what attention over a 16-bit cache reads: q in f32, k and v in f16 with a power-of-two scale a
// head. Not attention. Invariant: what is written for a row depends on that row, its slot and its position alone.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, constantsOnce, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { testValues, unit } from './case-data.ts';
import { packReference } from './matrix-pack.ts';
import { type HeadShape, headCase } from './qk-norm-rope.ts';

/** Heads of a workgroup. */
const HEADS = 4;

/** Grid of `cache-rows`: one workgroup for four heads of q, k or v. */
export function cacheRowsGrid(rows: number, shape: HeadShape): [number, number, number] {
  return foldedGrid(ceilDiv(rows * (shape.heads + 2 * shape.kvHeads), HEADS));
}

/** A head of q or k, normalised and rotated: values in f64 and what f32 may be off by. */
export function rotated(x: Float32Array, gain: Float32Array, turns: Float32Array, norm: boolean) {
  const headDim = x.length;
  const half = headDim / 2;
  const inverse = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / headDim + 1e-6);
  const n = Array.from(x, (value, d) => (norm ? gain[d]! * value * inverse : value));
  // Half the sum's error (eight terms a thread, then the threads), 2 ULP of inverseSqrt, roundings; then two products.
  const relative = (norm ? (8 + headDim / 8) / 2 + 14 : 4) * unit;
  const values = new Float64Array(headDim);
  const bounds = new Float64Array(headDim);
  for (let i = 0; i < half; i++) {
    const [cos, sin] = [turns[i * 2]!, turns[i * 2 + 1]!];
    values[i] = n[i]! * cos - n[i + half]! * sin;
    values[i + half] = n[i + half]! * cos + n[i]! * sin;
    bounds[i] = relative * (Math.abs(n[i]! * cos) + Math.abs(n[i + half]! * sin)) + 1e-38;
    bounds[i + half] = relative * (Math.abs(n[i + half]! * cos) + Math.abs(n[i]! * sin)) + 1e-38;
  }
  return { values, bounds };
}

/** A head of k whose rounding f32 arithmetic cannot change: `x` is drawn again until it is one. */
export function certainKey(
  x: Float32Array,
  draw: (n: number) => Float32Array,
  turns: Float32Array,
  gain: Float32Array | null,
) {
  for (let n = 0; ; n++) {
    x.set(draw(n));
    const pack = certain(rotated(x, gain ?? x, turns, gain !== null));
    if (pack) return pack;
  }
}

/** The packed head if every value within the bounds packs to the same bits; else null. */
function certain({ values, bounds }: { values: Float64Array; bounds: Float64Array }) {
  const packs = [-1, 1].map((side) => {
    const moved = Float32Array.from(values, (value, d) => value + side * bounds[d]!);
    return packReference(moved, 1, values.length, values.length);
  });
  const [low, high] = [packs[0]!, packs[1]!];
  return low.scales[0] === high.scales[0] && low.packed.every((word, i) => word === high.packed[i]) ? low : null;
}

function makeCase(shape: HeadShape, rows: number, norm: boolean, change: (v: Float32Array) => void = () => {}) {
  const data = headCase(shape, rows);
  const { heads, kvHeads, headDim } = shape;
  const { cacheLength, rawStride, meta } = data;
  const gain = testValues(2 * headDim, 102, 1.5);
  const raw = testValues(rows * rawStride, 101);
  const entries = 2 * kvHeads * cacheLength;
  const q = { values: new Float64Array(rows * heads * headDim), bounds: new Float64Array(rows * heads * headDim) };
  const k = new Uint32Array((entries * headDim) / 2).fill(0xffffffff);
  const v = k.slice();
  const scales = new Uint32Array(entries * 2).fill(0xffffffff);
  const store = (cache: Uint32Array, entry: number, which: 0 | 1, pack: ReturnType<typeof packReference>) => {
    cache.set(pack.packed, (entry * headDim) / 2);
    scales[entry * 2 + which] = new Uint32Array(pack.scales.buffer)[0]!;
  };
  for (let r = 0; r < rows; r++) {
    const [slot, position] = [meta[r * 2]!, meta[r * 2 + 1]!];
    const turns = data.rope.subarray(position * headDim, (position + 1) * headDim);
    for (let h = 0; h < heads + 2 * kvHeads; h++) {
      const base = r * rawStride + h * headDim;
      const x = raw.subarray(base, base + headDim);
      const entry = (slot * kvHeads + ((h - heads) % kvHeads)) * cacheLength + position;
      if (h >= heads + kvHeads) {
        change(x);
        store(v, entry, 1, packReference(x, 1, headDim, headDim));
      } else if (h < heads) {
        const { values, bounds } = rotated(x, gain, turns, norm);
        q.values.set(values, (r * heads + h) * headDim);
        q.bounds.set(bounds, (r * heads + h) * headDim);
      } else {
        const draw = (n: number) => testValues(headDim, 1000 + base + 7919 * n, 1 + (r % 3));
        store(k, entry, 0, certainKey(x, draw, turns, norm ? gain.subarray(headDim) : null));
      }
    }
  }
  const run: KernelCase = {
    name: `${rows} rows, ${heads}/${kvHeads} heads of ${headDim}${norm ? ', normalised' : ''}`,
    constants: { NORM: norm ? 1 : 0, LANES: headDim / 8 },
    params: {
      rows,
      heads,
      kvHeads,
      rawStride4: rawStride / 4,
      qStride4: (heads * headDim) / 4,
      cacheLength,
      eps: 1e-6,
    },
    grid: cacheRowsGrid(rows, shape),
    inputs: { raw, gain, rope: data.rope, meta },
    expected: { q, k, v, scales },
  };
  return run;
}

/** Values that pack to ties, subnormals and zeros, by the head's place; every fifth head zero, every seventh a NaN. */
function hardValues(): (x: Float32Array) => void {
  let head = 0;
  return (x) => {
    head += 1;
    const size = 2 ** ((head % 9) * 25 - 90);
    for (let i = 0; i < x.length; i++) x[i] = (i % 2 ? -1 : 1) * (1 + (i % 64) / 4096) * 2 ** -((i + head) % 29) * size;
    if (head % 5 === 0) x.fill(0);
    if (head % 7 === 0) x[head % x.length] = Number.NaN;
  };
}

export const cacheRows: QualifiedKernel = {
  name: 'cache-rows',
  bindings: [
    { name: 'raw', access: 'read' },
    { name: 'gain', access: 'read' },
    { name: 'rope', access: 'read' },
    { name: 'meta', access: 'read' },
    { name: 'q', access: 'read_write' },
    { name: 'k', access: 'read_write' },
    { name: 'v', access: 'read_write' },
    { name: 'scales', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['heads', 'u32'],
    ['kvHeads', 'u32'],
    ['rawStride4', 'u32'],
    ['qStride4', 'u32'],
    ['cacheLength', 'u32'],
    ['eps', 'f32'],
  ],
  constants: { NORM: 1, LANES: 16 },
  cases: () => [
    makeCase({ heads: 1, kvHeads: 1, headDim: 16 }, 1, true),
    makeCase({ heads: 4, kvHeads: 2, headDim: 64 }, 9, true),
    makeCase({ heads: 3, kvHeads: 1, headDim: 48 }, 13, false),
    makeCase({ heads: 4, kvHeads: 1, headDim: 128 }, 5, true),
    makeCase({ heads: 1, kvHeads: 3, headDim: 128 }, 11, false, hardValues()),
  ],
};

/** What `cache-rows` takes besides its buffers. Strides in elements. */
export interface CacheRowsShape extends HeadShape {
  rows: number;
  rawStride: number;
  qStride: number;
  /** Positions of a slot, a multiple of 64. */
  cacheLength: number;
  eps: number;
  /** Whether q and k are normalised. */
  norm: boolean;
}

/**
 * Records `cache-rows`. Views: raw f32 [rows, rawStride], gain f32 [2, headDim], rope f32 [positions, headDim / 2, 2],
 * meta u32 [rows, 2] (slot, position), q f32 [rows, qStride], k and v u32 [slots, kvHeads, cacheLength, headDim / 2],
 * scales f32 [slots, kvHeads, cacheLength, 2]. headDim is a multiple of 16.
 */
export function recordCacheRows(r: Recorder, views: readonly View[], shape: CacheRowsShape): void {
  const { rows, heads, kvHeads, headDim, rawStride, qStride, cacheLength, eps, norm } = shape;
  const params = { rows, heads, kvHeads, rawStride4: rawStride / 4, qStride4: qStride / 4, cacheLength, eps };
  r.dispatch(cacheRows, views, params, cacheRowsGrid(rows, shape), cacheRowsConstants(headDim, norm));
}

const once = constantsOnce<number>();

/** Pipeline constants of `cache-rows` and of its gradient. */
export function cacheRowsConstants(headDim: number, norm: boolean) {
  return once(headDim * 2 + (norm ? 1 : 0), () => ({ NORM: norm ? 1 : 0, LANES: headDim / 8 }));
}
