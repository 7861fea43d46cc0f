// The fixed binary tree in which group gradients and norm blocks are summed, as a pure schedule and incrementally.
// Not a reduction kernel: it says which pair is added next, into the left one.
// Invariant: the pairs depend on the number of leaves alone; a missing right child passes the left one unchanged.
import { KernelError } from '../lib/errors.ts';

/** Add block `from` into block `into`; a block is named by its first leaf. Always into < from. */
export interface Merge {
  into: number;
  from: number;
}

/** Elements of one block of the gradient norm. */
export const normBlockElements = 65_536;

function checkLeaves(n: number): void {
  if (!(Number.isInteger(n) && n >= 1))
    throw new KernelError(
      'tree-leaves',
      `building a summation tree: ${n} leaves; wanted a whole number >= 1. Sum at least one group.`,
    );
}

/**
 * All n - 1 merges, level by level: at stride s = 1, 2, 4, ... leaf i (a multiple of 2s) takes in leaf i + s where
 * there is one. The sum ends in leaf 0.
 */
export function treeSchedule(n: number): Merge[] {
  checkLeaves(n);
  const merges: Merge[] = [];
  for (let stride = 1; stride < n; stride *= 2)
    for (let into = 0; into + stride < n; into += 2 * stride) merges.push({ into, from: into + stride });
  return merges;
}

/** The merges that become possible, in order, once leaf `index` has arrived after leaves 0..index-1. */
export function mergesOnArrival(index: number): Merge[] {
  const merges: Merge[] = [];
  for (let stride = 1; Math.floor(index / stride) % 2 === 1; stride *= 2) {
    const into = Math.floor(index / (2 * stride)) * 2 * stride;
    merges.push({ into, from: into + stride });
  }
  return merges;
}

/** The merges left after the last of n leaves: the open blocks, smallest first. Empty for a power of two. */
export function mergesAtEnd(n: number): Merge[] {
  checkLeaves(n);
  // The open blocks are the set bits of n, largest first from leaf 0; each smaller one is a right child.
  const starts: number[] = [];
  let start = 0;
  for (let size = 2 ** Math.floor(Math.log2(n)); size >= 1; size /= 2)
    if (Math.floor(n / size) % 2 === 1) {
      starts.push(start);
      start += size;
    }
  const merges: Merge[] = [];
  for (let i = starts.length - 1; i > 0; i--) merges.push({ into: starts[i - 1]!, from: starts[i]! });
  return merges;
}

/** Accumulators in use at once when n leaves arrive in order, the arriving one included: floor(log2 n) + 1. */
export function accumulatorCount(n: number): number {
  checkLeaves(n);
  return Math.floor(Math.log2(n)) + 1;
}

export interface TreeAccumulator<T> {
  /** Takes leaf 0, 1, 2, ... in this order. */
  add(leaf: T): void;
  /** Merges what is open and returns the sum, which lies in the first leaf. Throws KernelError if there is none. */
  finish(): T;
}

/**
 * Sums leaves in order of arrival through the tree of `treeSchedule`. `addInto(into, from)` adds in place;
 * `release(from)` hands a spent leaf back, so that `accumulatorCount(n)` buffers suffice.
 */
export function treeAccumulator<T>(
  addInto: (into: T, from: T) => void,
  release: (spent: T) => void = () => {},
): TreeAccumulator<T> {
  const open = new Map<number, T>();
  let count = 0;
  const merge = ({ into, from }: Merge) => {
    addInto(open.get(into)!, open.get(from)!);
    release(open.get(from)!);
    open.delete(from);
  };
  return {
    add(leaf) {
      open.set(count, leaf);
      for (const pair of mergesOnArrival(count)) merge(pair);
      count++;
    },
    finish() {
      for (const pair of mergesAtEnd(count)) merge(pair);
      return open.get(0)!;
    },
  };
}

/** The fixed blocks over which the squares of a flat gradient are summed: 65,536 elements, the last one shorter. */
export function normBlocks(elements: number): { offset: number; length: number }[] {
  return Array.from({ length: Math.ceil(elements / normBlockElements) }, (_, i) => ({
    offset: i * normBlockElements,
    length: Math.min(normBlockElements, elements - i * normBlockElements),
  }));
}

/** The sum of f32 values by the tree, each addition rounded to f32: what a device has to reproduce bit for bit. */
export function treeSumF32(values: ArrayLike<number>): number {
  const sums = Float32Array.from(values);
  for (const { into, from } of treeSchedule(sums.length)) sums[into] = sums[into]! + sums[from]!;
  return sums[0]!;
}
