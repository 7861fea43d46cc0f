// How the bench takes times. Not what it measures. Invariant: the device is warmed up before anything is timed, because an
// idle GPU's clock is a fraction of its own; a time is the best of several, because other programs can only make it longer.
import { performance } from 'node:perf_hooks';
import type { Gpu } from '../src/gpu/device.ts';

/** How long one figure may take, in milliseconds: the same work before it is timed, and the rounds of timing. */
export interface Effort {
  warmMs: number;
  budgetMs: number;
}

/** Waits for all that was submitted. */
export async function finish(gpu: Gpu): Promise<void> {
  await gpu.wait('measuring', gpu.device.queue.onSubmittedWorkDone());
}

/**
 * Milliseconds of one `work`, the best of several rounds. Warms up with it first. `inner` calls are submitted back to
 * back in a round, so that the way to the device and back is not counted.
 */
export async function bestMs(gpu: Gpu, inner: number, { warmMs, budgetMs }: Effort, work: () => void): Promise<number> {
  const began = performance.now();
  do {
    work();
    await finish(gpu);
  } while (performance.now() - began < warmMs);
  let best = Number.POSITIVE_INFINITY;
  const start = performance.now();
  for (let round = 0; round < 5 && (round === 0 || performance.now() - start < budgetMs); round++) {
    const from = performance.now();
    for (let i = 0; i < inner; i++) work();
    await finish(gpu);
    best = Math.min(best, (performance.now() - from) / inner);
  }
  return best;
}

/**
 * Milliseconds of an asynchronous `work`: best and median of at least `repeats` calls, more where they fit the budget,
 * after one call and the time to warm up. One repeat is taken as it is, without a call before it.
 */
export async function stepMs(
  { warmMs, budgetMs }: Effort,
  repeats: number,
  work: () => Promise<unknown>,
): Promise<{ best: number; median: number }> {
  const began = performance.now();
  if (repeats > 1) {
    do await work();
    while (performance.now() - began < warmMs);
  }
  const times: number[] = [];
  const start = performance.now();
  while (times.length < repeats || (times.length < 50 && performance.now() - start < budgetMs)) {
    const from = performance.now();
    await work();
    times.push(performance.now() - from);
  }
  times.sort((a, b) => a - b);
  return { best: times[0]!, median: times[Math.floor(times.length / 2)]! };
}
