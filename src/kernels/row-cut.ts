// How several workgroups share the vocabulary of a row of logits, and what each stage hands to the next, in f64.
// Not a kernel. Invariant: the cut changes no bit of what the last stages write: maxima and integer sums have no order,
// and a lane of `logprobs` stays whole.
import { ceilDiv } from '../gpu/kernel.ts';

/** The constants by which row-tops, row-sums, row-list and sample-wide cut a row. */
export interface RowCut {
  /** Ids of a workgroup of row-tops and row-list: a multiple of 1024, at most 8192. */
  SLICE: number;
  /** Of the 256 lanes of `logprobs`, those of a workgroup of row-sums: 8, 16 or 32. */
  STRIPE: number;
  /** Ids that the list of a row holds. */
  CAPACITY: number;
  /** Ids from which on a list for top-p alone holds only those of the edge's bin. */
  LONGEST: number;
}

/** The cut that programs use. */
export const rowCut: RowCut = { SLICE: 5120, STRIPE: 8, CAPACITY: 32_768, LONGEST: 1024 };

/**
 * Words of a row of `bins`: 256 counts, 256 masses (low, high), the length of the list, whether only the edge's bin is
 * listed, the mass past the list, the mass of all, padding.
 */
export const binStride = 776;

/** Slices of a row: at most 256 may be. */
export function slicesOf(vocabulary: number, { SLICE }: RowCut): number {
  return ceilDiv(vocabulary, SLICE);
}

/** Ids of a block, whose masses row-sums gives: four of each lane of `logprobs`. */
export const blockIds = 1024;

/** Panels of row-sums: 256 / STRIPE blocks each. */
export function panelsOf(vocabulary: number, { STRIPE }: RowCut): number {
  return ceilDiv(vocabulary, (256 / STRIPE) * blockIds);
}

/** Blocks of a row: at most 256 may be. */
export function blocksOf(vocabulary: number, cut: RowCut): number {
  return panelsOf(vocabulary, cut) * (256 / cut.STRIPE);
}

/** Whether the limits of the last stages allow the cut for a vocabulary. */
export function cutFits(vocabulary: number, cut: RowCut): boolean {
  return slicesOf(vocabulary, cut) <= 256 && blocksOf(vocabulary, cut) <= 256;
}

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);

/** The u32 of an f32 in the order of the f32 values; -0 below 0. */
export function rawKey(x: number): number {
  float[0] = x;
  const bits = word[0]!;
  return (bits >>> 31 === 1 ? ~bits : bits | 0x80000000) >>> 0;
}

/** The same with -0 as 0, as `sample` orders them. */
export function drawKey(x: number): number {
  return x === 0 ? 0x80000000 : rawKey(x);
}

/** The bin of an id by its distance from the top: 16 bins an octave from 2^-11 (bin 1) to 30 (bin 255). */
export function binOf(top: number, x: number): number {
  float[0] = top - x;
  return Math.min(Math.max((word[0]! >>> 19) - 1855, 0), 255);
}

/** The largest value of each slice of one row of scaled logits x, as keys. */
export function topsOf(x: Float32Array, cut: RowCut): number[] {
  return Array.from({ length: slicesOf(x.length, cut) }, (_, s) =>
    x.subarray(s * cut.SLICE, (s + 1) * cut.SLICE).reduce((most, value) => Math.max(most, rawKey(value)), 0),
  );
}

const topOf = (x: Float32Array) => x.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);

/** The weight of an id in units of 2^-44. */
const weightOf = (d: number) => BigInt(Math.floor(Math.exp(d) * 2 ** 44));

const words = (mass: bigint) => [Number(mass & 0xffffffffn), Number(mass >> 32n)] as const;

/** Row x's `bins` as row-sums gives them: the counts and, if asked for, the masses. */
export function binsOf(x: Float32Array, weights: boolean): number[] {
  const bins = new Array<number>(binStride).fill(0);
  const masses = new Array<bigint>(256).fill(0n);
  const top = topOf(x);
  for (const value of x) {
    bins[binOf(top, value)]! += 1;
    masses[binOf(top, value)]! += weightOf(value - top);
  }
  if (weights) for (const [i, mass] of masses.entries()) bins.splice(256 + 2 * i, 2, ...words(mass));
  return bins;
}

/** The masses of row x [blocks, 256 / STRIPE, low and high]: of the ids with x - top >= minLog. */
export function massesOf(x: Float32Array, minLog: number, cut: RowCut): number[] {
  const stripes = 256 / cut.STRIPE;
  const masses = new Array<bigint>(blocksOf(x.length, cut) * stripes).fill(0n);
  const top = topOf(x);
  for (const [v, value] of x.entries()) {
    if (value - top < minLog) continue;
    const at = Math.floor(v / blockIds) * stripes + Math.floor((v % 256) / cut.STRIPE);
    masses[at]! += weightOf(value - top);
  }
  return masses.flatMap(words);
}

/** What row-list makes of a row. */
export interface ListedRow {
  list: [key: number, id: number][];
  /** `bins` from the length of the list on, without padding. */
  tail: number[];
  /** The masses [blocks] of the ids before the edge's bin, where only that is listed. */
  masses: number[];
}

/** The definition: topK = 0 for top-p alone, whose 1 - topP is dropHigh * 2^-32 + dropLow * 2^-64. */
export function listOf(
  x: Float32Array,
  filter: { topK: number; dropHigh: number; dropLow: number; minLog: number },
  cut: RowCut,
): ListedRow {
  const top = topOf(x);
  const bins = binsOf(x, filter.topK === 0);
  const massOf = (i: number) => BigInt(bins[256 + 2 * i]!) + (BigInt(bins[257 + 2 * i]!) << 32n);
  const past = (last: number) => Array.from({ length: 255 - last }, (_, i) => massOf(last + 1 + i));
  const sum = (masses: bigint[]) => masses.reduce((a, b) => a + b, 0n);
  const count = (last: number) => bins.slice(0, last + 1).reduce((a, b) => a + b, 0);
  const total = sum(past(-1));
  const drop = (total * ((BigInt(filter.dropHigh) << 32n) | BigInt(filter.dropLow))) >> 64n;
  const enough = (last: number) => (filter.topK > 0 ? count(last) >= filter.topK : sum(past(last)) <= drop);
  let last = 0;
  while (last < 255 && !enough(last)) last += 1;
  const edgeOnly = filter.topK === 0 && count(last) > cut.LONGEST;
  const masses = new Array<bigint>(Math.ceil(x.length / blockIds)).fill(0n);
  const list: [number, number][] = [];
  for (const [v, value] of x.entries()) {
    const bin = binOf(top, value);
    if (edgeOnly && bin < last && value - top >= filter.minLog)
      masses[Math.floor(v / blockIds)]! += weightOf(value - top);
    if (bin === last || (bin < last && !edgeOnly)) list.push([drawKey(value), v]);
  }
  const tail = [list.length, edgeOnly ? 1 : 0, ...words(sum(past(last))), ...words(total)];
  return { list, tail, masses: edgeOnly ? masses.flatMap(words) : [] };
}
