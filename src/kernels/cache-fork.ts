// A prompt's cache for the members of its group: copies a slot's first positions to another slot.
// Invariant: exact; other positions and slots stay as they were.
import type { View } from '../gpu/buffers.ts';
import { ceilDiv, type KernelCase, type QualifiedKernel } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';

interface ForkShape {
  kvHeads: number;
  headDim: number;
  cacheLength: number;
  length: number;
}

/** Grid: positions times groups of eight elements in x, key-value heads in y. */
function forkGrid({ kvHeads, headDim, length }: ForkShape): [number, number, number] {
  return [ceilDiv((length * headDim) / 8, 64), kvHeads, 1];
}

function makeCase(shape: ForkShape, slots: number, source: number, to: number): KernelCase {
  const { kvHeads, headDim, cacheLength, length } = shape;
  const entries = slots * kvHeads * cacheLength;
  const words = (per: number, salt: number) =>
    Uint32Array.from({ length: entries * per }, (_, i) => i * 2654435761 + salt);
  const inputs = { k: words(headDim / 2, 1), v: words(headDim / 2, 2), scales: words(2, 3) };
  const copied = (all: Uint32Array<ArrayBuffer>) => {
    const after = all.slice();
    const per = all.length / entries;
    for (let h = 0; h < kvHeads; h++) {
      const begin = (source * kvHeads + h) * cacheLength * per;
      after.set(all.subarray(begin, begin + length * per), (to * kvHeads + h) * cacheLength * per);
    }
    return after;
  };
  return {
    name: `${length} of ${cacheLength} positions, ${kvHeads} heads of ${headDim}, slot ${source} to ${to}`,
    params: { source, to, kvHeads, cacheLength, length, d8: headDim / 8 },
    grid: forkGrid(shape),
    inputs,
    expected: { k: copied(inputs.k), v: copied(inputs.v), scales: copied(inputs.scales) },
  };
}

export const cacheFork: QualifiedKernel = {
  name: 'cache-fork',
  bindings: [
    { name: 'k', access: 'read_write' },
    { name: 'v', access: 'read_write' },
    { name: 'scales', access: 'read_write' },
  ],
  params: [
    ['source', 'u32'],
    ['to', 'u32'],
    ['kvHeads', 'u32'],
    ['cacheLength', 'u32'],
    ['length', 'u32'],
    ['d8', 'u32'],
  ],
  cases: () => [
    makeCase({ kvHeads: 2, headDim: 16, cacheLength: 64, length: 1 }, 3, 2, 0),
    makeCase({ kvHeads: 1, headDim: 128, cacheLength: 64, length: 64 }, 2, 0, 1),
    makeCase({ kvHeads: 3, headDim: 64, cacheLength: 128, length: 65 }, 3, 1, 2),
  ],
};

/** Records the copy of `length` positions. Views: k, v, scales as `cache-rows` writes them. */
export function recordCacheFork(
  r: Recorder,
  views: readonly View[],
  source: number,
  to: number,
  shape: ForkShape,
): void {
  const { kvHeads, headDim, cacheLength, length } = shape;
  if (length === 0) return;
  r.dispatch(cacheFork, views, { source, to, kvHeads, cacheLength, length, d8: headDim / 8 }, forkGrid(shape));
}
