// a += b over a flat buffer: one merge of the gradient tree.
// Not a tree: its order is src/grpo/tree.ts. Invariant: one rounding an element; nothing past `count` changes.
import { ceilDiv, foldedGrid, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import { testValues, unit } from './case-data.ts';

/** Grid of `add-into`: one thread four elements. */
export function addIntoGrid(count: number): [number, number, number] {
  return foldedGrid(ceilDiv(count, 256));
}

function makeCase(count: number, scale: number): KernelCase {
  const a = testValues(count, 41, scale);
  const b = testValues(count, 42);
  const values = Float64Array.from(a, (value, i) => value + b[i]!);
  const bounds = values.map((value) => Math.abs(value) * unit);
  const padB = new Float32Array(Math.ceil(count / 4) * 4).fill(1e30);
  padB.set(b);
  return {
    name: `${count} elements, a of scale ${scale}`,
    params: { count },
    grid: addIntoGrid(count),
    inputs: { b: padB, a },
    expected: { a: { values, bounds } },
  };
}

export const addInto: QualifiedKernel = {
  name: 'add-into',
  bindings: [
    { name: 'b', access: 'read' },
    { name: 'a', access: 'read_write' },
  ],
  params: [['count', 'u32']],
  cases: () => [
    makeCase(1, 1),
    makeCase(3, 1e30),
    makeCase(4, 1),
    makeCase(255, 1e-3),
    makeCase(256, 1),
    makeCase(257, 1e4),
    makeCase(100_003, 1),
  ],
};
