// Whether results repeat bit for bit: sampled tokens in the sampler, a reference pass and the trainer's pass; and the same
// training steps in four processes, with robustness and tracing on and off.
// Not a measurement of time. Invariant: not one different bit anywhere, or the check fails.
import type { KernelFamily } from '../src/gpu/device.ts';
import { runChild } from './child.ts';
import { sameTokens, type TokenComparison } from './compare-tokens.ts';
import type { BenchSettings, TokenSettings } from './settings.ts';

export interface TokensOrder {
  shape: string;
  family: KernelFamily;
  tokenSettings: TokenSettings;
}

export interface BitsOrder {
  shape: string;
  family: KernelFamily;
  robustness: boolean;
  tracing: boolean;
  steps: number;
  settings: BenchSettings;
}

/** SHA-256 of what the steps ended in. */
export interface BitsAnswer {
  /** Every sampled token of every step. */
  tokens: string;
  adapter: string;
  /** AdamW's first and second moments. */
  moments: string;
  /** Sampled tokens whose log-prob the trainer computed with other bits. */
  logprobMismatches: number;
}

export type BitsRun = Pick<BitsOrder, 'robustness' | 'tracing'> & BitsAnswer;

export interface BitsResult {
  schema: 'shaderl.bench-bits/2';
  shape: string;
  family: KernelFamily;
  tokenSettings: TokenSettings;
  /** By batch: how many sampled tokens have other bits in other passes. */
  comparison: TokenComparison[];
  steps: number;
  settings: BenchSettings;
  runs: BitsRun[];
  /** No sampled token differs between passes, and all runs ended in the same bytes. */
  equal: boolean;
}

const variants = [
  { robustness: true, tracing: false },
  { robustness: true, tracing: false },
  { robustness: false, tracing: false },
  { robustness: true, tracing: true },
];

/** Whether runs ended in the same bytes. */
export function sameBits(runs: readonly BitsAnswer[]): boolean {
  const [first] = runs;
  return runs.every(
    (run) =>
      run.tokens === first?.tokens &&
      run.adapter === first.adapter &&
      run.moments === first.moments &&
      run.logprobMismatches === 0,
  );
}

/** Both comparisons, each in processes of their own. `tracing` false: the adapter has no clock to trace by. */
export async function compareBits(
  order: TokensOrder & Omit<BitsOrder, 'robustness' | 'tracing'>,
  tracing: boolean,
  onProgress: (text: string) => void,
): Promise<BitsResult> {
  const { shape, family, tokenSettings, steps, settings } = order;
  onProgress(`sampled tokens in every pass, batches ${tokenSettings.batches.join(', ')}`);
  const comparison = await runChild<TokenComparison[]>(
    new URL('tokens-child.ts', import.meta.url),
    { shape, family, tokenSettings } satisfies TokensOrder,
    3_600_000,
  );
  const runs: BitsRun[] = [];
  for (const variant of variants.filter((one) => tracing || !one.tracing)) {
    const { robustness, tracing: traced } = variant;
    onProgress(`${steps} steps, robustness ${robustness ? 'on' : 'off'}, tracing ${traced ? 'on' : 'off'}`);
    const full: BitsOrder = { shape, family, steps, settings, ...variant };
    runs.push({
      ...variant,
      ...(await runChild<BitsAnswer>(new URL('bits-child.ts', import.meta.url), full, 900_000)),
    });
  }
  const equal = sameTokens(comparison) && sameBits(runs);
  return { schema: 'shaderl.bench-bits/2', ...order, comparison, runs, equal };
}
