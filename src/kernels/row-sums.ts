// The sums of the 256 lanes of `logprobs` for a row, and for draws the masses of its blocks and its bins.
// Not log-probs: logprobs-wide adds the lanes. Invariant: a lane adds its ids in order, so its bits do not depend on how
// many workgroups share the row; masses and counts are integers.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { unit, withStride } from './case-data.ts';
import { caseLogits, expError, logprobsShapes, scaledLogits } from './logprobs.ts';
import { binStride, binsOf, massesOf, panelsOf, type RowCut, rowCut, slicesOf, topsOf } from './row-cut.ts';

/**
 * The definition in f64 of one row's partials [256, 2] for scaled logits x: sums of e and e d, d = x - top, e = exp(d),
 * over the ids l, l + 256, ... Bounds: each term has the error of exp, and each addition that of the sum so far.
 */
export function partialsReference(x: Float32Array): { values: Float64Array; bounds: Float64Array } {
  const values = new Float64Array(512);
  const bounds = new Float64Array(512);
  const magnitudes = new Float64Array(256);
  const top = x.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  for (const [v, value] of x.entries()) {
    const d = value - top;
    const e = Math.exp(d);
    const at = (v % 256) * 2;
    values[at]! += e;
    values[at + 1]! += e * d;
    bounds[at]! += e * expError(d);
    bounds[at + 1]! += Math.abs(e * d) * (expError(d) + 2 * unit);
    magnitudes[v % 256]! += Math.abs(e * d);
  }
  const chain = Math.ceil(x.length / 256) * unit;
  for (let l = 0; l < 256; l++) {
    bounds[l * 2]! += chain * values[l * 2]! + 1e-30;
    bounds[l * 2 + 1]! += chain * magnitudes[l]! + 1e-30;
  }
  return { values, bounds };
}

function makeCase(shape: (typeof logprobsShapes)[number], i: number): KernelCase {
  const { rows, vocabulary, columns, temperature, special } = shape;
  const small: RowCut = { ...rowCut, SLICE: 1024, STRIPE: [8, 16, 32][i % 3]! };
  const cut = vocabulary < 2000 ? small : rowCut;
  const drawing = special !== 'plain';
  const stride = Math.ceil(columns / 4) * 4;
  const logits = caseLogits(shape);
  const x = Array.from({ length: rows }, (_, r) =>
    scaledLogits(logits.subarray(r * columns, r * columns + vocabulary), 1 / temperature),
  );
  const references = x.map(partialsReference);
  const minLog = Math.log(0.01);
  const exact = special === 'equal';
  return {
    name: `${rows} rows, ${vocabulary} of ${columns} ids, T ${temperature}, ${special}`,
    constants: { STRIPE: cut.STRIPE, MASSES: drawing ? 1 : 0, BINS: drawing ? 1 : 0, WEIGHTS: exact ? 1 : 0 },
    params: {
      rows,
      vocabulary,
      stride,
      slices: slicesOf(vocabulary, cut),
      panels: panelsOf(vocabulary, cut),
      inverseTemperature: 1 / temperature,
      minLog,
    },
    grid: [256 / cut.STRIPE, rows, 1],
    inputs: {
      logits: withStride(logits, rows, columns, stride, 1e30),
      tops: Uint32Array.from(x.flatMap((row) => topsOf(row, cut))),
      ...(drawing ? { bins: new Uint32Array(rows * binStride) } : {}),
    },
    expected: {
      partials: {
        values: Float64Array.from(references.flatMap(({ values }) => [...values])),
        bounds: Float64Array.from(references.flatMap(({ bounds }) => [...bounds])),
      },
      ...(drawing ? { bins: Uint32Array.from(x.flatMap((row) => binsOf(row, exact))) } : {}),
      // Only where every exp is 1 are the integers known to the last; else the comparison with `sample` covers them.
      ...(exact ? { masses: Uint32Array.from(x.flatMap((row) => massesOf(row, minLog, cut))) } : {}),
    },
  };
}

/**
 * `partials` [rows, 256, 2]. Where the constant MASSES is 1 also `masses` [rows, blocks, 256 / STRIPE, 2]; where BINS is
 * 1, added to what row-tops cleared, the counts of `bins` [rows, 776], and their masses where WEIGHTS is 1 too. Else any
 * buffers may be bound there. Grid: 256 / STRIPE x rows.
 */
export const rowSums: QualifiedKernel = {
  name: 'row-sums',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'tops', access: 'read' },
    { name: 'partials', access: 'read_write' },
    { name: 'masses', access: 'read_write' },
    { name: 'bins', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride', 'u32'],
    ['slices', 'u32'],
    ['panels', 'u32'],
    ['inverseTemperature', 'f32'],
    ['minLog', 'f32'],
  ],
  constants: { STRIPE: rowCut.STRIPE, MASSES: 0, BINS: 0, WEIGHTS: 0 },
  cases: () => logprobsShapes.map(makeCase),
};
