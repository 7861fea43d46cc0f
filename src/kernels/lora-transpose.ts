// LoRA's B matrices by rows of the rank: a copy that products read four columns at a time.
// Not the parameters. Invariant: exact; what no entry names is left as it was.
import type { KernelCase, QualifiedKernel } from '../gpu/kernel.ts';
import { testValues } from './case-data.ts';

/** Columns that an entry of the table covers at most. */
export const transposeColumns = 64;

function makeCase(rank: number, targets: readonly { width: number; stride: number; at: number }[]): KernelCase {
  const flat = testValues(targets.reduce((sum, { width }) => sum + width * rank, 0) + 8, 191);
  const out = new Uint32Array(Math.max(...targets.map(({ at, stride }) => at + stride * rank))).fill(0xffffffff);
  const words = new Uint32Array(flat.buffer);
  const table: number[] = [];
  let from = 8;
  for (const { width, stride, at } of targets) {
    for (let n = 0; n < width; n += transposeColumns) {
      table.push(from + n * rank, at + n, stride, Math.min(transposeColumns, width - n));
    }
    for (let n = 0; n < width; n++)
      for (let r = 0; r < rank; r++) out[at + r * stride + n] = words[from + n * rank + r]!;
    from += width * rank;
  }
  const entries = table.length / 4;
  return {
    name: `rank ${rank}, ${targets.map(({ width, stride }) => `${width} of ${stride}`).join(', ')}`,
    params: { entries, rank },
    grid: [2, Math.ceil(entries / 2), 1],
    inputs: { table: Uint32Array.from(table), parameters: flat },
    expected: { out },
  };
}

/** Views: table u32 [entries, 4] (source, to, stride, count), the flat parameters, out. */
export const loraTranspose: QualifiedKernel = {
  name: 'lora-transpose',
  bindings: [
    { name: 'table', access: 'read' },
    { name: 'parameters', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['entries', 'u32'],
    ['rank', 'u32'],
  ],
  cases: () => [
    makeCase(4, [{ width: 1, stride: 4, at: 0 }]),
    makeCase(16, [
      { width: 130, stride: 200, at: 0 },
      { width: 64, stride: 200, at: 132 },
    ]),
    makeCase(8, [{ width: 65, stride: 68, at: 12 }]),
  ],
};
