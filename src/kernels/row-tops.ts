// The largest logit of each slice of a row: the first stage of draws and log-probs that share a row among workgroups.
// Not the maximum of the row: the next stages take it from the slices'. Invariant: exact, so no order matters.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { withStride } from './case-data.ts';
import { caseLogits, logprobsShapes, scaledLogits } from './logprobs.ts';
import { binStride, rowCut, slicesOf, topsOf } from './row-cut.ts';

function makeCase(shape: (typeof logprobsShapes)[number]): KernelCase {
  const { rows, vocabulary, columns, temperature, special } = shape;
  const cut = vocabulary < 2000 ? { ...rowCut, SLICE: 1024 } : rowCut;
  const stride = Math.ceil(columns / 4) * 4;
  const logits = caseLogits(shape);
  const broken = special === 'skip' ? 1 : -1;
  if (broken >= 0) logits[broken * columns + vocabulary - 1] = Number.NEGATIVE_INFINITY;
  const tops = Array.from({ length: rows }, (_, r) =>
    topsOf(scaledLogits(logits.subarray(r * columns, r * columns + vocabulary), 1 / temperature), cut),
  );
  if (broken >= 0) tops[broken]![tops[broken]!.length - 1] = 0xffffffff;
  return {
    name: `${rows} rows, ${vocabulary} of ${columns} ids, T ${temperature}, ${special}`,
    constants: { SLICE: cut.SLICE },
    params: { rows, vocabulary, stride, slices: slicesOf(vocabulary, cut), inverseTemperature: 1 / temperature },
    grid: [slicesOf(vocabulary, cut), rows, 1],
    inputs: { logits: withStride(logits, rows, columns, stride, 1e30) },
    expected: { tops: Uint32Array.from(tops.flat()), bins: new Uint32Array(rows * binStride) },
  };
}

/**
 * `tops` [rows, slices] = the key of the largest logit / T of each slice, 0xffffffff where one is not finite; `bins`
 * [rows, 776] = 0. Grid: slices x rows.
 */
export const rowTops: QualifiedKernel = {
  name: 'row-tops',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'tops', access: 'read_write' },
    { name: 'bins', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride', 'u32'],
    ['slices', 'u32'],
    ['inverseTemperature', 'f32'],
  ],
  constants: { SLICE: rowCut.SLICE },
  cases: () => logprobsShapes.map(makeCase),
};
