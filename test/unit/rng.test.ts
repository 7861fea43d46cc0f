// The generator against the Random123 known-answer vectors and against the properties that a run relies on.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  epochOrder,
  permutation,
  philox4x32,
  streamWords,
  tokenUniform,
  uniform24,
  uniformBelow,
} from '../../src/lib/rng.ts';

const u32 = fc.integer({ min: 0, max: 0xffffffff });

/** Philox by BigInt products: a second implementation that shares no arithmetic with the module. */
function philoxByBigInt(counter: readonly number[], key: readonly number[]): number[] {
  let c = counter.map(BigInt);
  let k = key.map(BigInt);
  const mask = 0xffffffffn;
  for (let round = 0; round < 10; round++) {
    const p0 = 0xd2511f53n * c[0]!;
    const p1 = 0xcd9e8d57n * c[2]!;
    c = [(p1 >> 32n) ^ c[1]! ^ k[0]!, p1 & mask, (p0 >> 32n) ^ c[3]! ^ k[1]!, p0 & mask];
    k = [(k[0]! + 0x9e3779b9n) & mask, (k[1]! + 0xbb67ae85n) & mask];
  }
  return c.map(Number);
}

describe('philox4x32', () => {
  test.each([
    {
      counter: [0, 0, 0, 0] as const,
      key: [0, 0] as const,
      want: [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    },
    {
      counter: [0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff] as const,
      key: [0xffffffff, 0xffffffff] as const,
      want: [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    },
    {
      counter: [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344] as const,
      key: [0xa4093822, 0x299f31d0] as const,
      want: [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    },
  ])('gives the Random123 known answer for key $key', ({ counter, key, want }) => {
    expect(philox4x32(counter, key)).toEqual(want);
  });

  test('agrees with exact integer arithmetic on any counter and key', () => {
    fc.assert(
      fc.property(fc.tuple(u32, u32, u32, u32), fc.tuple(u32, u32), (counter, key) => {
        expect(philox4x32(counter, key)).toEqual(philoxByBigInt(counter, key));
      }),
      { seed: 1, numRuns: 500 },
    );
  });
});

describe('token sampling', () => {
  test('a uniform is exact in f32, at least 0 and below 1', () => {
    expect(uniform24(0)).toBe(0);
    expect(uniform24(0xffffffff)).toBe(1 - 2 ** -24);
    expect(uniform24(0xff)).toBe(0);
    fc.assert(
      fc.property(u32, (word) => {
        const u = uniform24(word);
        expect(Math.fround(u)).toBe(u);
        expect(u >= 0 && u < 1).toBe(true);
      }),
      { seed: 2 },
    );
  });

  test('the counter is [position, member, group, step] under the key [seed, Samp]', () => {
    const key = { seed: 42, step: 3, group: 5, member: 7, position: 11 };
    expect(tokenUniform(key)).toBe(uniform24(philoxByBigInt([11, 7, 5, 3], [42, 0x53616d70])[0]!));
  });

  test('changing any one field changes the number', () => {
    const base = { seed: 1, step: 2, group: 3, member: 4, position: 5 };
    for (const field of ['seed', 'step', 'group', 'member', 'position'] as const) {
      expect(tokenUniform({ ...base, [field]: base[field] + 1 })).not.toBe(tokenUniform(base));
    }
  });

  test('the numbers of one episode are uniform by a chi-square test over 64 bins', () => {
    const counts = new Array<number>(64).fill(0);
    for (let position = 0; position < 64_000; position++) {
      counts[Math.floor(tokenUniform({ seed: 9, step: 1, group: 0, member: 0, position }) * 64)]! += 1;
    }
    const chiSquare = counts.reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0);
    expect(chiSquare).toBeLessThan(103.4); // 0.999 quantile, 63 degrees of freedom
  });
});

describe('streams and orders', () => {
  test('an index past 2^32 reaches the second counter word', () => {
    expect(streamWords(1, 2, 2 ** 32 + 5)).toEqual(philoxByBigInt([5, 1, 2, 0], [1, 0x5374726d]));
  });

  test('a permutation holds each index once, for any size', () => {
    for (const n of [0, 1, 2, 3, 7, 100, 257]) {
      const order = permutation(3, 1, n);
      expect([...order].sort((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, i) => i));
    }
  });

  test('a bounded integer rejects the words that would favour small values', () => {
    const from =
      (...words: number[]) =>
      () =>
        words.shift()!;
    const range = 3 * 2 ** 30; // a quarter of all words lies beyond its only multiple
    expect(uniformBelow(range, from(range - 1))).toBe(range - 1);
    expect(uniformBelow(range, from(range, 0xffffffff, 5))).toBe(5);
    expect(uniformBelow(2 ** 32, from(0xffffffff))).toBe(0xffffffff);
    expect(uniformBelow(10, from(0xffffffff, 4294967289))).toBe(9);
  });

  test('the six orders of three items are equally likely', () => {
    const counts = new Map<string, number>();
    for (let seed = 0; seed < 12_000; seed++) {
      const name = permutation(seed, 0, 3).join('');
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    expect(counts.size).toBe(6);
    const chiSquare = [...counts.values()].reduce((sum, count) => sum + (count - 2000) ** 2 / 2000, 0);
    expect(chiSquare).toBeLessThan(20.52); // 0.999 quantile, 5 degrees of freedom
  });

  test('each epoch has its own order and each order comes back the same', () => {
    const first = epochOrder(20261020, 0, 256);
    expect(epochOrder(20261020, 0, 256)).toEqual(first);
    expect(epochOrder(20261020, 1, 256)).not.toEqual(first);
    expect(epochOrder(42, 0, 256)).not.toEqual(first);
  });

  test('the order of eight prompts is frozen', () => {
    expect(epochOrder(20261020, 0, 8)).toMatchInlineSnapshot(`
      [
        2,
        3,
        1,
        7,
        4,
        0,
        5,
        6,
      ]
    `);
  });
});
