// Statistics of paired evaluations: clustered paired bootstrap, exact McNemar, Wilson interval, clustered error.
// Not a test of superiority on its own: the interval and the exact test are reported side by side, with their counts.
// Invariant: samples of one item are one cluster and are drawn together, with one index vector for both arms.
import { quantileSorted, sum } from 'simple-statistics';
import { philox4x32 } from '../lib/rng.ts';

/** z of a two-sided 95 % interval: the 0.975 quantile of the standard normal distribution. */
const Z_95 = 1.959963984540054;
/** Second Philox key word of bootstrap draws: 'Boot' in ASCII. */
const BOOTSTRAP_KEY_TAG = 0x426f6f74;

export interface Interval {
  low: number;
  high: number;
}

/** One sample of both arms. Samples with the same `cluster` (an item's seeds, or its languages) are never split. */
export interface PairedSample {
  cluster: string;
  a: number;
  b: number;
}

export interface BootstrapResult {
  /** Mean of b minus mean of a, over all samples. */
  difference: number;
  /** Null with fewer than two clusters. */
  interval: Interval | null;
  /** Standard deviation of the resampled differences; null with fewer than two clusters. */
  standardError: number | null;
  level: 0.95;
  method: 'paired percentile bootstrap over items';
  resamples: number;
  seed: number;
  items: number;
  samples: number;
}

/** Groups values by key in order of first appearance. */
function groupSums(samples: readonly PairedSample[]): { differenceSum: number; count: number }[] {
  const groups = new Map<string, { differenceSum: number; count: number }>();
  for (const { cluster, a, b } of samples) {
    const group = groups.get(cluster) ?? { differenceSum: 0, count: 0 };
    group.differenceSum += b - a;
    group.count += 1;
    groups.set(cluster, group);
  }
  return [...groups.values()];
}

/**
 * Paired cluster bootstrap (Efron & Tibshirani 1993, ch. 8 and 13): each draw takes `n items` clusters with replacement
 * and computes the difference of means over all their samples; the interval is the 2.5 % to 97.5 % percentile
 * (linear interpolation). Word j of draw d is word j mod 4 of Philox block [j div 4, d, 0, 0] under key [seed, 'Boot'];
 * an index is floor(word * n / 2^32), whose bias is below n * 2^-32.
 */
export function pairedBootstrap(
  samples: readonly PairedSample[],
  options: { seed: number; resamples?: number },
): BootstrapResult {
  const resamples = options.resamples ?? 10_000;
  const groups = groupSums(samples);
  const n = groups.length;
  const result: BootstrapResult = {
    difference: samples.length === 0 ? Number.NaN : sum(samples.map((s) => s.b - s.a)) / samples.length,
    interval: null,
    standardError: null,
    level: 0.95,
    method: 'paired percentile bootstrap over items',
    resamples,
    seed: options.seed,
    items: n,
    samples: samples.length,
  };
  if (n < 2) return result;
  const differences = new Float64Array(resamples);
  for (let draw = 0; draw < resamples; draw++) {
    let total = 0;
    let count = 0;
    for (let first = 0; first < n; first += 4) {
      const words = philox4x32([first / 4, draw, 0, 0], [options.seed, BOOTSTRAP_KEY_TAG]);
      for (let j = 0; j < Math.min(4, n - first); j++) {
        const group = groups[Math.floor((words[j]! * n) / 2 ** 32)]!;
        total += group.differenceSum;
        count += group.count;
      }
    }
    differences[draw] = total / count;
  }
  differences.sort();
  const sorted = Array.from(differences);
  const mean = sum(sorted) / resamples;
  return {
    ...result,
    interval: { low: quantileSorted(sorted, 0.025), high: quantileSorted(sorted, 0.975) },
    standardError: Math.sqrt(sum(sorted.map((d) => (d - mean) ** 2)) / resamples),
  };
}

export interface McNemarResult {
  /** Items that b has and a has not, and the reverse. */
  wins: number;
  losses: number;
  discordant: number;
  /** Exact two-sided p of `wins` against Binomial(discordant, 1/2); 1 without discordant items. */
  pValue: number;
  method: 'exact McNemar (two-sided binomial)';
}

/** Exact McNemar test: min(1, 2 P(X <= min(wins, losses))), X ~ Binomial(wins + losses, 1/2), in integer arithmetic. */
export function exactMcNemar(wins: number, losses: number): McNemarResult {
  const n = wins + losses;
  let term = 1n;
  let tail = 0n;
  for (let k = 0; k <= Math.min(wins, losses); k++) {
    tail += term;
    term = (term * BigInt(n - k)) / BigInt(k + 1);
  }
  // 2 * tail / 2^n, with the 64 leading bits of the tail: exact to the last bit or so for any n.
  const shift = Math.max(0, tail.toString(2).length - 64);
  const p = n === 0 ? 1 : Number(tail >> BigInt(shift)) * 2 ** (shift - n + 1);
  return {
    wins,
    losses,
    discordant: n,
    pValue: Math.min(1, p),
    method: 'exact McNemar (two-sided binomial)',
  };
}

/** Wilson score interval (95 %) of `successes` in `n` trials (Wilson 1927); null for n = 0. */
export function wilsonInterval(successes: number, n: number): Interval | null {
  if (n === 0) return null;
  const p = successes / n;
  const z2 = Z_95 ** 2;
  const centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const half = (Z_95 / (1 + z2 / n)) * Math.sqrt((p * (1 - p)) / n + z2 / (4 * n * n));
  return {
    low: successes === 0 ? 0 : centre - half,
    high: successes === n ? 1 : centre + half,
  };
}

export interface ClusteredError {
  mean: number;
  /** sqrt(sum over clusters of (sum of residuals)^2) / n: the cluster-robust error without small-sample factor. */
  clustered: number;
  /** What ignoring the clusters would give: population standard deviation / sqrt(n). */
  naive: number;
  items: number;
  samples: number;
}

/** Standard error of a mean whose samples come in clusters (CR0). Null without samples. */
export function clusteredStandardError(samples: readonly { cluster: string; value: number }[]): ClusteredError | null {
  const n = samples.length;
  if (n === 0) return null;
  const mean = sum(samples.map((s) => s.value)) / n;
  const residuals = new Map<string, number>();
  for (const { cluster, value } of samples) residuals.set(cluster, (residuals.get(cluster) ?? 0) + (value - mean));
  return {
    mean,
    clustered: Math.sqrt(sum([...residuals.values()].map((r) => r * r))) / n,
    naive: Math.sqrt(sum(samples.map((s) => (s.value - mean) ** 2))) / n,
    items: residuals.size,
    samples: n,
  };
}
