// The weights of a small matrix once more, in the order in which the products of few rows read them.
// Not a conversion: the same bf16 bits. Invariant: panel (i, j) holds the terms 256 j to 256 j + 255 of the rows 8 i to
// 8 i + 7, row after row.
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { packBf16, roundBf16, testValues } from './case-data.ts';
import { panelRows, panelTerms } from './matrix-few-tiles.ts';

/** Words (two bf16) of a matrix [columns, k] in panels. columns: a multiple of 8; k: of 256. */
export function inPanels(packed: Uint32Array, columns: number, k: number): Uint32Array<ArrayBuffer> {
  const made = new Uint32Array(packed.length);
  const width = panelTerms / 2;
  for (let i = 0; i < packed.length; i++) {
    const panel = Math.floor(i / (panelRows * width));
    const row = Math.floor(panel / (k / panelTerms)) * panelRows + (Math.floor(i / width) % panelRows);
    made[i] = packed[(row * k) / 2 + (panel % (k / panelTerms)) * width + (i % width)]!;
  }
  if (made.length !== (columns * k) / 2) throw new RangeError(`${packed.length} words are not ${columns} x ${k} bf16`);
  return made;
}

/** Grid of `matrix-panels`: eight bf16 a thread. */
export function panelsGrid(columns: number, k: number): [number, number, number] {
  return [ceilDiv((columns * k) / 8, 256), 1, 1];
}

function makeCase(columns: number, k: number): KernelCase {
  const w = packBf16(roundBf16(testValues(columns * k, 62 + k)));
  return {
    name: `${columns}x${k}`,
    params: { quads: (columns * k) / 8, panels: k / panelTerms },
    grid: panelsGrid(columns, k),
    inputs: { w },
    expected: { out: inPanels(w, columns, k) },
  };
}

export const matrixPanels: QualifiedKernel = {
  name: 'matrix-panels',
  bindings: [
    { name: 'w', access: 'read' },
    { name: 'out', access: 'read_write' },
  ],
  params: [
    ['quads', 'u32'],
    ['panels', 'u32'],
  ],
  cases: () => [makeCase(8, 256), makeCase(16, 512), makeCase(24, 768)],
};
