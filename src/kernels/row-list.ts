// The ids of a row among which top-k or top-p has its edge, found from the row's bins: what sample-wide filters instead
// of the row. Not the filter: ids that it drops may be listed too. Invariant: every id that the filter keeps is listed,
// or lies in a bin before the one listed and is in the masses; the draw does not depend on the list's order.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, withStride } from './case-data.ts';
import { scaledLogits } from './logprobs.ts';
import { binStride, binsOf, blocksOf, listOf, type RowCut, rowCut, slicesOf, topsOf } from './row-cut.ts';
import { sampleScalars } from './sample.ts';

interface ListShape {
  rows: number;
  vocabulary: number;
  topK: number;
  topP: number;
  scale: number;
  cut: Partial<RowCut>;
}

// With one slice a row the list is in the order of ids; with more, the slices come as they finish.
const shapes: readonly ListShape[] = [
  { rows: 1, vocabulary: 1, topK: 0, topP: 0.5, scale: 1, cut: { SLICE: 1024, CAPACITY: 4 } },
  { rows: 3, vocabulary: 257, topK: 20, topP: 1, scale: 0.1, cut: { SLICE: 1024, CAPACITY: 300 } },
  { rows: 2, vocabulary: 1000, topK: 0, topP: 0.95, scale: 0.15, cut: { SLICE: 1024, CAPACITY: 1000 } },
  { rows: 2, vocabulary: 1000, topK: 0, topP: 0.95, scale: 0.15, cut: { SLICE: 2048, LONGEST: 100 } },
  { rows: 2, vocabulary: 1000, topK: 0, topP: 0.9, scale: 0, cut: { SLICE: 1024, CAPACITY: 1000 } },
  { rows: 2, vocabulary: 700, topK: 300, topP: 1, scale: 0.01, cut: { SLICE: 1024, CAPACITY: 128 } },
  { rows: 2, vocabulary: 2047, topK: 7, topP: 0.9, scale: 2, cut: { SLICE: 1024, CAPACITY: 64 } },
  { rows: 1, vocabulary: 151_669, topK: 20, topP: 1, scale: 0.2, cut: {} },
];

function makeCase({ rows, vocabulary, topK, topP, scale, cut: given }: ListShape): KernelCase {
  const cut: RowCut = { ...rowCut, ...given };
  const slices = slicesOf(vocabulary, cut);
  const stride = Math.ceil(vocabulary / 4) * 4;
  const logits = testValues(rows * vocabulary, 91, scale);
  const x = Array.from({ length: rows }, (_, r) =>
    scaledLogits(logits.subarray(r * vocabulary, (r + 1) * vocabulary), 1.25),
  );
  const { dropHigh, dropLow, minLog } = sampleScalars({ temperature: 1, topK, topP, minP: 0 }) as ReturnType<
    typeof sampleScalars
  > & { dropHigh: number; dropLow: number; minLog: number };
  const listed = x.map((row) => listOf(row, { topK, dropHigh, dropLow, minLog }, cut));
  const bins = Uint32Array.from(x.flatMap((row) => binsOf(row, topK === 0)));
  const after = bins.slice();
  const list = new Uint32Array(rows * cut.CAPACITY * 2).fill(0xffffffff);
  for (const [r, own] of listed.entries()) {
    after.set(own.tail, r * binStride + 768);
    list.set(own.list.slice(0, cut.CAPACITY).flat(), r * cut.CAPACITY * 2);
  }
  const massStride = (blocksOf(vocabulary, cut) * 256) / cut.STRIPE;
  return {
    name: `${rows} rows, ${vocabulary} ids, k ${topK} p ${topP} scale ${scale}, ${slices} slices, edge from ${cut.LONGEST}`,
    constants: { SLICE: cut.SLICE },
    params: {
      ...{ rows, vocabulary, stride, slices, inverseTemperature: 1.25, topK, dropHigh, dropLow, minLog, massStride },
      capacity: cut.CAPACITY,
      longest: cut.LONGEST,
    },
    grid: [slices, rows, 1],
    inputs: {
      logits: withStride(logits, rows, vocabulary, stride, 1e30),
      tops: Uint32Array.from(x.flatMap((row) => topsOf(row, cut))),
      bins,
      masses: new Uint32Array(rows * massStride * 2),
    },
    expected: { bins: after, ...(slices === 1 ? { list } : {}) },
  };
}

/**
 * `list` [rows, capacity, key and id] and from the 768th word of `bins` [rows, 776] its length (which row-tops cleared),
 * whether it holds the edge's bin alone, and masses. Then also `masses` [rows, blocks, 2]. Grid: slices x rows.
 */
export const rowList: QualifiedKernel = {
  name: 'row-list',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'tops', access: 'read' },
    { name: 'bins', access: 'read_write' },
    { name: 'list', access: 'read_write' },
    { name: 'masses', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride', 'u32'],
    ['slices', 'u32'],
    ['inverseTemperature', 'f32'],
    ['topK', 'u32'],
    ['dropHigh', 'u32'],
    ['dropLow', 'u32'],
    ['capacity', 'u32'],
    ['longest', 'u32'],
    ['massStride', 'u32'],
    ['minLog', 'f32'],
  ],
  constants: { SLICE: rowCut.SLICE },
  cases: () => shapes.map(makeCase),
};
