// out[r, c] = table[token[r], c]: the embedding lookup, from one part of the vocabulary at a time.
// Not a sum: parts write disjoint rows. Invariant: an exact copy of the stored weights as f32.
import { ceilDiv, type KernelCase, padded, type QualifiedKernel } from '../gpu/kernel.ts';
import { packBf16, roundBf16, testValues, withStride } from './case-data.ts';

/** Grid of `embed`: four columns a thread in x, rows in y. */
export function embedGrid(rows: number, c4: number): [number, number, number] {
  return [ceilDiv(c4, 64), rows, 1];
}

function makeCase(rows: number, columns: number, firstRow: number, tableRows: number, bf16: boolean): KernelCase {
  const raw = testValues(tableRows * columns, 5 + columns);
  const table = bf16 ? roundBf16(raw) : raw;
  const stride = padded(columns);
  const tokens = Uint32Array.from({ length: rows }, (_, r) => (r * 7) % (tableRows + firstRow + 2));
  const values = new Float64Array(rows * stride).fill(Number.NaN);
  for (let r = 0; r < rows; r++) {
    const row = tokens[r]! - firstRow;
    if (row < 0 || row >= tableRows) continue;
    for (let c = 0; c < stride; c++) values[r * stride + c] = c < columns ? table[row * columns + c]! : 0;
  }
  const wide = withStride(table, tableRows, columns, stride);
  return {
    name: `${rows} tokens of ${tableRows}x${columns} from ${firstRow} ${bf16 ? 'bf16' : 'f32'}`,
    constants: { BF16: bf16 ? 1 : 0 },
    params: { rows, c4: stride / 4, outStride4: stride / 4, firstRow, tableRows },
    grid: embedGrid(rows, stride / 4),
    inputs: { tokens, table: bf16 ? packBf16(wide) : wide },
    expected: { out: { values, bounds: new Float64Array(values.length) } },
  };
}

export const embed: QualifiedKernel = {
  name: 'embed',
  bindings: [
    { name: 'tokens', access: 'read' },
    { name: 'table', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['rows', 'u32'],
    ['c4', 'u32'],
    ['outStride4', 'u32'],
    ['firstRow', 'u32'],
    ['tableRows', 'u32'],
  ],
  constants: { BF16: 1 },
  cases: () => [
    makeCase(1, 4, 0, 3, true),
    makeCase(65, 63, 0, 11, true),
    makeCase(9, 260, 5, 6, false),
    makeCase(33, 130, 4, 40, true),
  ],
};
