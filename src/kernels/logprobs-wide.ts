// `logprobs` for large vocabularies on GPUs: the last of three stages, which adds the lanes that row-sums gives.
// Not another definition: the bits are those of `logprobs`. Invariant: sampler and trainer take their log-probs from
// the same form, because it follows from the device and the vocabulary alone.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { logprobs, scaledLogits } from './logprobs.ts';
import { type RowCut, rowCut, slicesOf, topsOf } from './row-cut.ts';
import { partialsReference } from './row-sums.ts';

function makeCase(run: KernelCase): KernelCase {
  const { rows, vocabulary, stride, inverseTemperature } = run.params as Record<string, number> & { rows: number };
  const cut: RowCut = vocabulary! < 2000 ? { ...rowCut, SLICE: 1024 } : rowCut;
  const logits = run.inputs['logits'] as Float32Array;
  const x = Array.from({ length: rows }, (_, r) =>
    scaledLogits(logits.subarray(r * stride!, r * stride! + vocabulary!), inverseTemperature!),
  );
  return {
    ...run,
    params: { ...run.params, slices: slicesOf(vocabulary!, cut) },
    grid: [1, rows, 1],
    inputs: {
      ...run.inputs,
      tops: Uint32Array.from(x.flatMap((row) => topsOf(row, cut))),
      partials: Float32Array.from(x.flatMap((row) => [...partialsReference(row).values])),
    },
  };
}

/** As `logprobs`, with `tops` [rows, slices] and `partials` [rows, 256, 2] of the stages before. Grid: 1 x rows. */
export const logprobsWide: QualifiedKernel = {
  name: 'logprobs-wide',
  bindings: [
    { name: 'logits', access: 'read' },
    { name: 'targets', access: 'read' },
    { name: 'tops', access: 'read' },
    { name: 'partials', access: 'read' },
    { name: 'stats', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['vocabulary', 'u32'],
    ['stride', 'u32'],
    ['rowOffset', 'u32'],
    ['inverseTemperature', 'f32'],
    ['slices', 'u32'],
  ],
  cases: () => logprobs.cases().map(makeCase),
};
