// The summation tree: the direct schedule, the incremental one, its memory, and its bits.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  accumulatorCount,
  type Merge,
  mergesAtEnd,
  mergesOnArrival,
  normBlockElements,
  normBlocks,
  treeAccumulator,
  treeSchedule,
  treeSumF32,
} from '../../src/grpo/tree.ts';
import { seededNumbers } from '../support/golden-model.ts';

const sizes = Array.from({ length: 70 }, (_, i) => i + 1);
const byPair = (a: Merge, b: Merge) => a.into - b.into || a.from - b.from;
const incremental = (n: number) => [
  ...Array.from({ length: n }, (_, index) => mergesOnArrival(index)).flat(),
  ...mergesAtEnd(n),
];

describe('the summation tree', () => {
  it('pairs six leaves as ((0 1)(2 3))(4 5), the second level passing (4 5) on', () => {
    expect(treeSchedule(6)).toEqual([
      { into: 0, from: 1 },
      { into: 2, from: 3 },
      { into: 4, from: 5 },
      { into: 0, from: 2 },
      { into: 0, from: 4 },
    ]);
  });

  it.each(sizes)('of %i leaves takes in every leaf but the first exactly once', (n) => {
    expect(
      treeSchedule(n)
        .map(({ from }) => from)
        .sort((a, b) => a - b),
    ).toEqual(sizes.slice(0, n - 1));
  });

  it.each(sizes)('of %i leaves has the same pairs when leaves arrive one by one', (n) => {
    expect(incremental(n).sort(byPair)).toEqual(treeSchedule(n).sort(byPair));
  });

  it('gives the same f32 bits incrementally and directly, for any number of leaves', () => {
    fc.assert(
      fc.property(
        fc.array(fc.float({ noNaN: true, noDefaultInfinity: true }), { minLength: 1, maxLength: 80 }),
        (x) => {
          const sums = treeAccumulator<Float32Array>((into, from) => {
            into[0] = into[0]! + from[0]!;
          });
          for (const value of x) sums.add(Float32Array.of(value));
          expect(sums.finish()[0]).toBe(treeSumF32(x));
        },
      ),
      { seed: 20_261_020 },
    );
  });

  it('differs in bits from a running sum, so that the order is really tested', () => {
    const next = seededNumbers(3);
    const values = Float32Array.from({ length: 33 }, next);
    let running = Math.fround(0);
    for (const value of values) running = Math.fround(running + value);
    expect(treeSumF32(values)).not.toBe(running);
  });

  it('passes a lone leaf on unchanged, minus zero included', () => {
    expect(treeSumF32([-0])).toBe(-0);
    expect(treeSumF32([-0, -0, -0])).toBe(-0);
  });

  it.each(sizes)('of %i leaves needs no more than floor(log2 n) + 1 accumulators at once', (n) => {
    let [live, most] = [0, 0];
    const sums = treeAccumulator<number>(
      () => {},
      () => live--,
    );
    for (let leaf = 0; leaf < n; leaf++) {
      most = Math.max(most, ++live);
      sums.add(leaf);
    }
    expect(sums.finish()).toBe(0);
    expect(live).toBe(1);
    expect(most).toBeLessThanOrEqual(accumulatorCount(n));
    expect(accumulatorCount(n)).toBe(Math.floor(Math.log2(n)) + 1);
  });

  it('can be split over devices by aligned blocks without changing a bit', () => {
    const next = seededNumbers(11);
    const values = Float32Array.from({ length: 16 }, next);
    const blocks = [0, 4, 8, 12].map((start) => treeSumF32(values.subarray(start, start + 4)));
    expect(treeSumF32(blocks)).toBe(treeSumF32(values));
  });

  it('refuses no leaves', () => {
    expect(() => treeSchedule(0)).toThrowErrorMatchingInlineSnapshot(
      `[KernelError: building a summation tree: 0 leaves; wanted a whole number >= 1. Sum at least one group.]`,
    );
    expect(() => treeAccumulator(() => {}).finish()).toThrow(/0 leaves/);
  });
});

describe('norm blocks', () => {
  it.each([
    [1, [1]],
    [65_536, [65_536]],
    [65_537, [65_536, 1]],
    [200_000, [65_536, 65_536, 65_536, 3392]],
  ])('of %i elements are cut every 65,536', (elements, lengths) => {
    const blocks = normBlocks(elements);
    expect(blocks.map(({ length }) => length)).toEqual(lengths);
    expect(blocks.map(({ offset }) => offset)).toEqual(lengths.map((_, i) => i * normBlockElements));
  });
});
