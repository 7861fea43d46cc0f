// Picks rows of a matrix by index, or puts rows back at their index: the rows whose logits are wanted.
// Not a reduction: scatter indices are distinct. Invariant: an exact copy.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues } from './case-data.ts';

/** Grid of `gather-rows`: four columns a thread in x, rows in y. */
export function gatherGrid(rows: number, c4: number): [number, number, number] {
  return [ceilDiv(c4, 64), rows, 1];
}

function makeCase(rows: number, total: number, c4: number, scatter: boolean): KernelCase {
  const index = Uint32Array.from({ length: rows + 2 }, (_, i) => (i < 2 ? 0 : ((i - 2) * 3 + 1) % total));
  const xRows = scatter ? rows : total;
  const outRows = scatter ? total : rows;
  const x = testValues(xRows * c4 * 4, 3);
  const values = new Float64Array(outRows * c4 * 4).fill(Number.NaN);
  for (let i = 0; i < rows; i++) {
    const other = index[i + 2]!;
    const [from, to] = scatter ? [i, other] : [other, i];
    for (let c = 0; c < c4 * 4; c++) values[to * c4 * 4 + c] = x[from * c4 * 4 + c]!;
  }
  return {
    name: `${scatter ? 'scatter' : 'gather'} ${rows} of ${total} rows of ${c4 * 4}`,
    constants: { SCATTER: scatter ? 1 : 0 },
    params: { rows, c4, xStride4: c4, outStride4: c4, indexOffset: 2 },
    grid: gatherGrid(rows, c4),
    inputs: { index, x },
    expected: { out: { values, bounds: new Float64Array(values.length) } },
  };
}

export const gatherRows: QualifiedKernel = {
  name: 'gather-rows',
  bindings: [
    { name: 'index', access: 'read' },
    { name: 'x', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['c4', 'u32'],
    ['xStride4', 'u32'],
    ['outStride4', 'u32'],
    ['indexOffset', 'u32'],
  ],
  constants: { SCATTER: 0 },
  cases: () => [
    makeCase(1, 1, 1, false),
    makeCase(7, 11, 65, false),
    makeCase(7, 11, 65, true),
    makeCase(64, 100, 3, true),
  ],
};
