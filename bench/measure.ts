// How the bench takes times, and the two limits that it holds everything against: copy bandwidth and matmul rate.
// Not a kernel. Invariant: the device is warmed up before anything is timed, because an idle GPU's clock is a fraction of
// its own; a time is the best of several, because other programs can only make it longer.
import { performance } from 'node:perf_hooks';
import { allocate, release, upload, type View } from '../src/gpu/buffers.ts';
import type { Gpu } from '../src/gpu/device.ts';
import type { Recorder } from '../src/gpu/recorder.ts';
import { gatherGrid, gatherRows } from '../src/kernels/gather-rows.ts';
import { recordMatmul } from '../src/kernels/matmul.ts';

const WARM_MS = 250;

export interface Limits {
  /** Bytes read and written by the fastest copy, GB/s. */
  copyGBs: number;
  /** The fastest of some square products in this kernel family, GFLOP/s. */
  matmulGflops: number;
  matmulShape: string;
}

/** Waits for all that was submitted. */
export async function finish(gpu: Gpu): Promise<void> {
  await gpu.wait('measuring', gpu.device.queue.onSubmittedWorkDone());
}

/**
 * Milliseconds of one `work`, the best of several rounds. Runs it for 250 ms first. `inner` calls are submitted back to
 * back in a round, so that the way to the device and back is not counted.
 */
export async function bestMs(gpu: Gpu, inner: number, budgetMs: number, work: () => void): Promise<number> {
  const began = performance.now();
  do {
    work();
    await finish(gpu);
  } while (performance.now() - began < WARM_MS);
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
 * after one call and 250 ms. One repeat is taken as it is, without a call before it.
 */
export async function stepMs(
  budgetMs: number,
  repeats: number,
  work: () => Promise<unknown>,
): Promise<{ best: number; median: number }> {
  const began = performance.now();
  if (repeats > 1) {
    do await work();
    while (performance.now() - began < WARM_MS);
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

async function copyRate(gpu: Gpu, r: Recorder, software: boolean): Promise<number> {
  const width = 2048;
  const rows = software ? 4096 : 65_535;
  const bytes = rows * width * 4;
  const views: View[] = [];
  try {
    const [from, to, index] = [bytes, bytes, rows * 4].map((size, i) => {
      const view = allocate(gpu, `bench.copy.${i}`, size);
      views.push(view);
      return view;
    }) as [View, View, View];
    upload(
      gpu,
      index,
      Uint32Array.from({ length: rows }, (_, i) => i),
    );
    const c4 = width / 4;
    const byKernel = await bestMs(gpu, software ? 1 : 20, 2000, () => {
      const params = { rows, c4, xStride4: c4, outStride4: c4, indexOffset: 0 };
      r.dispatch(gatherRows, [index, from, to], params, gatherGrid(rows, c4), { SCATTER: 0 });
      r.submit();
    });
    const byCommand = await bestMs(gpu, software ? 1 : 20, 2000, () => {
      r.copy(from, 0, to, 0, bytes);
      r.submit();
    });
    return (2 * bytes) / Math.min(byKernel, byCommand) / 1e6;
  } finally {
    for (const view of views) release(gpu, view);
  }
}

/** Milliseconds of x [rows, k] times w^T, w [columns, k] in bf16, as a linear layer runs it. */
export async function matmulMs(
  gpu: Gpu,
  r: Recorder,
  rows: number,
  columns: number,
  k: number,
  inner: number,
  budgetMs: number,
): Promise<number> {
  const views = [rows * k * 4, columns * k * 2, rows * columns * 4].map((bytes, i) =>
    allocate(gpu, `bench.matmul.${i}`, bytes),
  );
  try {
    // Values take no part in the time, except that zeros draw less power than what a model holds.
    upload(
      gpu,
      views[0]!,
      Float32Array.from({ length: rows * k }, (_, i) => ((i * 37) % 101) / 101 - 0.5),
    );
    upload(
      gpu,
      views[1]!,
      Uint16Array.from({ length: columns * k }, (_, i) => 0x3c00 + ((i * 53) % 257)),
    );
    const params = {
      rows,
      columns,
      k4: k / 4,
      xStride4: k / 4,
      xOffset4: 0,
      outStride: columns,
      outOffset: 0,
      mode: 0,
      scale: 1,
    };
    return await bestMs(gpu, inner, budgetMs, () => {
      recordMatmul(r, views, params, true);
      r.submit();
    });
  } finally {
    for (const view of views) release(gpu, view);
  }
}

/** The device's limits, measured. */
export async function measureLimits(gpu: Gpu, r: Recorder): Promise<Limits> {
  const { software } = gpu.identity;
  const copyGBs = await copyRate(gpu, r, software);
  let matmulGflops = 0;
  let matmulShape = '';
  for (const size of software ? [256, 512] : [2048, 4096]) {
    const ms = await matmulMs(gpu, r, size, size, size, software ? 1 : 5, 2000);
    const rate = (2 * size ** 3) / ms / 1e6;
    if (rate <= matmulGflops) continue;
    matmulGflops = rate;
    matmulShape = `${size}x${size}x${size}`;
  }
  return { copyGBs, matmulGflops, matmulShape };
}
