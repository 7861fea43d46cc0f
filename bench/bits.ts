// Whether training steps repeat bit for bit: the same steps in four processes, with robustness and tracing on and off.
// Not a measurement of time. Invariant: adapters without one different bit, or the check fails.
import type { KernelFamily } from '../src/gpu/device.ts';
import { runChild } from './child.ts';
import type { BenchSettings } from './settings.ts';

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
  schema: 'shaderl.bench-bits/1';
  shape: string;
  family: KernelFamily;
  steps: number;
  settings: BenchSettings;
  runs: BitsRun[];
  /** All runs ended in the same bytes, and no log-prob differed between sampler and trainer. */
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

/** Runs the steps once for every variant, one after the other. `tracing` false: the adapter has no clock to trace by. */
export async function compareBits(
  order: Omit<BitsOrder, 'robustness' | 'tracing'>,
  tracing: boolean,
  onProgress: (text: string) => void,
): Promise<BitsResult> {
  const runs: BitsRun[] = [];
  for (const variant of variants.filter((one) => tracing || !one.tracing)) {
    const { robustness, tracing: traced } = variant;
    onProgress(`${order.steps} steps, robustness ${robustness ? 'on' : 'off'}, tracing ${traced ? 'on' : 'off'}`);
    const full: BitsOrder = { ...order, ...variant };
    runs.push({
      ...variant,
      ...(await runChild<BitsAnswer>(new URL('bits-child.ts', import.meta.url), full, 900_000)),
    });
  }
  return { schema: 'shaderl.bench-bits/1', ...order, runs, equal: sameBits(runs) };
}
