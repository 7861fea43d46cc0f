// `sample` for large vocabularies on GPUs: the last of the stages that share a row among workgroups, which filters and
// picks. Not another definition: ids and log-probs are those of `sample`, bit for bit. Invariant: as there; nothing
// depends on how the row was cut or on the order of its list.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { scaledLogits } from './logprobs.ts';
import { binStride, binsOf, blocksOf, listOf, massesOf, type RowCut, rowCut, slicesOf, topsOf } from './row-cut.ts';
import { sample } from './sample.ts';

/** Whether a draw takes its ids from the row's list: with a top-k or top-p that can drop something. */
export function drawsFromList(settings: { topK: number; topP: number }, vocabulary: number): boolean {
  return (settings.topK > 0 && settings.topK < vocabulary) || settings.topP < 1;
}

/** The scalars of `sample-wide` that the cut gives. */
export function pickScalars(vocabulary: number, cut: RowCut): Record<string, number> {
  const [slices, blocks] = [slicesOf(vocabulary, cut), blocksOf(vocabulary, cut)];
  return { slices, sliceIds: cut.SLICE, blocks, capacity: cut.CAPACITY, stripes: 256 / cut.STRIPE };
}

/** A case of `sample` with what the stages before would have given, under limits of the list. */
function makeCase(run: KernelCase, limits: Partial<RowCut>, suffix = ''): KernelCase {
  const scalars = run.params as Record<
    'rows' | 'vocabulary' | 'stride' | 'inverseTemperature' | 'topK' | 'dropHigh' | 'dropLow' | 'minLog',
    number
  >;
  const { rows, vocabulary, stride, inverseTemperature, dropHigh, dropLow, minLog } = scalars;
  const cut: RowCut = {
    ...rowCut,
    ...(vocabulary < 2000 ? { SLICE: 1024, STRIPE: 16, CAPACITY: 2000 } : {}),
    ...limits,
  };
  const logits = run.inputs['logits'] as Float32Array;
  const topK = scalars.topK < vocabulary ? scalars.topK : 0;
  const listed = topK > 0 || dropHigh > 0;
  const massWords = (blocksOf(vocabulary, cut) * 512) / cut.STRIPE;
  const x = Array.from({ length: rows }, (_, r) =>
    scaledLogits(logits.subarray(r * stride, r * stride + vocabulary), inverseTemperature),
  );
  const bins = Uint32Array.from(x.flatMap((row) => binsOf(row, listed && topK === 0)));
  const list = new Uint32Array(rows * cut.CAPACITY * 2);
  const masses = new Uint32Array(rows * massWords);
  for (const [r, row] of x.entries()) {
    if (!listed) {
      masses.set(massesOf(row, minLog, cut), r * massWords);
      continue;
    }
    const own = listOf(row, { topK, dropHigh, dropLow, minLog }, cut);
    bins.set(own.tail, r * binStride + 768);
    masses.set(own.masses, r * massWords);
    // Backwards: the order of the list must not matter.
    list.set(own.list.reverse().slice(0, cut.CAPACITY).flat(), r * cut.CAPACITY * 2);
  }
  const { ids, logprobs } = run.expected as { ids: Uint32Array; logprobs: KernelCase['expected'][string] };
  return {
    name: `${run.name}${suffix}`,
    params: { ...run.params, ...pickScalars(vocabulary, cut) },
    grid: [1, rows, 1],
    inputs: { ...run.inputs, tops: Uint32Array.from(x.flatMap((row) => topsOf(row, cut))), masses, bins, list },
    expected: { ids, logprobs },
  };
}

/**
 * As `sample`, with `tops` [rows, slices], `masses` [rows, blocks, stripes, 2], `bins` [rows, 776] and, with top-k or
 * top-p, `list` [rows, capacity, 2], of the stages before. Grid: 1 x rows.
 */
export const sampleWide: QualifiedKernel = {
  name: 'sample-wide',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'keys', access: 'read' },
    { name: 'tops', access: 'read' },
    { name: 'masses', access: 'read' },
    { name: 'bins', access: 'read' },
    { name: 'list', access: 'read' },
    { name: 'ids', access: 'read_write' },
    { name: 'logprobs', access: 'read_write' },
  ],
  params: [
    ...sample.params,
    ['slices', 'u32'],
    ['sliceIds', 'u32'],
    ['blocks', 'u32'],
    ['capacity', 'u32'],
    ['stripes', 'u32'],
  ],
  cases: () => {
    const cases = sample.cases();
    const filtered = cases.filter(
      ({ params }) => params['vocabulary']! < 2000 && (params['topK']! > 0 || params['dropHigh']! > 0),
    );
    return [
      ...cases.map((run) => makeCase(run, {})),
      ...filtered.map((run) => makeCase(run, { CAPACITY: 4 }, ', lists of 4')),
      ...filtered.map((run) => makeCase(run, { LONGEST: 2 }, ', edges from 2')),
    ];
  },
};
