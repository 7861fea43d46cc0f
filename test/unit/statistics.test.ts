import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  clusteredStandardError,
  exactMcNemar,
  pairedBootstrap,
  wilsonInterval,
} from '../../src/evaluation/statistics.ts';

const near = (found: number, wanted: number, tolerance: number) => Math.abs(found - wanted) <= tolerance;

describe('pairedBootstrap', () => {
  const samples = Array.from({ length: 40 }, (_, i) => ({
    cluster: `i${i % 20}`,
    a: i % 3 === 0 ? 1 : 0,
    b: i % 2 === 0 ? 1 : 0,
  }));

  it('repeats bit for bit for a seed, and moves with the seed', () => {
    expect(pairedBootstrap(samples, { seed: 5 })).toEqual(pairedBootstrap(samples, { seed: 5 }));
    expect(pairedBootstrap(samples, { seed: 5 }).standardError).not.toBe(
      pairedBootstrap(samples, { seed: 6 }).standardError,
    );
  });

  it('turns its interval round when the arms are swapped', () => {
    const swapped = samples.map(({ cluster, a, b }) => ({ cluster, a: b, b: a }));
    const [one, other] = [pairedBootstrap(samples, { seed: 5 }), pairedBootstrap(swapped, { seed: 5 })];
    expect(near(one.interval!.low, -other.interval!.high, 1e-12)).toBe(true);
    expect(near(one.difference, -other.difference, 1e-12)).toBe(true);
  });

  it('agrees with the cluster-robust error of the differences', () => {
    const analytic = clusteredStandardError(samples.map(({ cluster, a, b }) => ({ cluster, value: b - a })))!;
    const { standardError, difference } = pairedBootstrap(samples, { seed: 11 });
    expect(near(standardError!, analytic.clustered, 0.03 * analytic.clustered)).toBe(true);
    expect(near(difference, analytic.mean, 1e-12)).toBe(true);
  });

  it('covers the true difference about as often as it says', () => {
    // 200 data sets of 60 items with P(a) = 0.5 and P(b) = 0.6, from a small linear congruential generator.
    let state = 12345;
    const uniform = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
    let covered = 0;
    for (let set = 0; set < 200; set++) {
      const items = Array.from({ length: 60 }, (_, i) => ({
        cluster: String(i),
        a: uniform() < 0.5 ? 1 : 0,
        b: uniform() < 0.6 ? 1 : 0,
      }));
      const { interval } = pairedBootstrap(items, { seed: set, resamples: 1000 });
      if (interval!.low <= 0.1 && interval!.high >= 0.1) covered += 1;
    }
    expect(covered).toBeGreaterThanOrEqual(180);
    expect(covered).toBeLessThanOrEqual(199);
  });
});

describe('exactMcNemar', () => {
  // R: binom.test(wins, wins + losses)$p.value
  it.each([
    [5, 0, 0.0625],
    [10, 3, 0.09228515625],
    [3, 10, 0.09228515625],
    [7, 7, 1],
    [0, 0, 1],
    [1, 0, 1],
    [20, 5, 0.0040773153305053711],
  ])('gives the binomial p for %i wins and %i losses', (wins, losses, p) => {
    expect(near(exactMcNemar(wins, losses).pValue, p, 1e-12)).toBe(true);
  });

  it('stays exact where factorials overflow', () => {
    const { pValue } = exactMcNemar(1100, 900);
    // Normal approximation with continuity correction: z = (1100 - 1000 - 0.5) / sqrt(500) = 4.4498, p = 8.59e-6.
    expect(near(pValue, 8.59e-6, 0.2e-6)).toBe(true);
    expect(exactMcNemar(3000, 0).pValue).toBe(0); // 2^-2999 is below the smallest double
  });

  it('is a probability and symmetric', () => {
    fc.assert(
      fc.property(fc.nat(300), fc.nat(300), (wins, losses) => {
        const p = exactMcNemar(wins, losses).pValue;
        expect(p > 0 && p <= 1).toBe(true);
        expect(exactMcNemar(losses, wins).pValue).toBe(p);
      }),
    );
  });
});

describe('wilsonInterval', () => {
  // Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3.
  it.each([
    [81, 263, 0.2553, 0.3662],
    [15, 148, 0.0624, 0.1605],
    [0, 20, 0, 0.1611],
    [1, 29, 0.0061, 0.1718],
  ])('gives the published limits for %i of %i', (successes, n, low, high) => {
    const interval = wilsonInterval(successes, n)!;
    expect(near(interval.low, low, 5e-5)).toBe(true);
    expect(near(interval.high, high, 5e-5)).toBe(true);
  });

  it('has no interval without trials, and reaches 1 when all succeed', () => {
    expect(wilsonInterval(0, 0)).toBe(null);
    expect(wilsonInterval(7, 7)!.high).toBe(1);
  });
});
