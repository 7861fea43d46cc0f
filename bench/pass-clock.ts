// How long the device takes for one pass, by its own clock: what the host takes to record and send it is not in it.
// Not a trace of dispatches (src/gpu/timing.ts): they follow each other as they do without measuring.
// Invariant: one figure stands for one pass, whatever was sent before it.
import { performance } from 'node:perf_hooks';
import type { Gpu } from '../src/gpu/device.ts';
import { createProgram } from '../src/gpu/program.ts';
import type { Recorder } from '../src/gpu/recorder.ts';

export interface PassClock {
  /** Microseconds of a pass with what `record` puts into it; by the host's clock where the adapter has no timestamps. */
  time(record: (pass: GPUComputePassEncoder) => void): Promise<number>;
  destroy(): void;
}

export function createPassClock(gpu: Gpu): PassClock {
  const { device } = gpu;
  const exact = device.features.has('timestamp-query');
  const set = exact ? device.createQuerySet({ type: 'timestamp', count: 2 }) : null;
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const resolved = device.createBuffer({ label: 'pass clock', size: 16, usage: QUERY_RESOLVE | COPY_SRC });
  const read = device.createBuffer({ label: 'pass clock', size: 16, usage: COPY_DST | MAP_READ });
  return {
    async time(record) {
      const encoder = device.createCommandEncoder();
      const timestampWrites = set && { querySet: set, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
      const pass = encoder.beginComputePass(timestampWrites ? { timestampWrites } : {});
      record(pass);
      pass.end();
      if (set) {
        encoder.resolveQuerySet(set, 0, 2, resolved, 0);
        encoder.copyBufferToBuffer(resolved, 0, read, 0, 16);
      }
      const began = performance.now();
      device.queue.submit([encoder.finish()]);
      await gpu.wait('timing a pass', set ? read.mapAsync(GPUMapMode.READ) : device.queue.onSubmittedWorkDone());
      gpu.check();
      if (!set) return (performance.now() - began) * 1000;
      const [start, end] = new BigUint64Array(read.getMappedRange());
      read.unmap();
      return Number(end! - start!) / 1000;
    },
    destroy() {
      set?.destroy();
      resolved.destroy();
      read.destroy();
    },
  };
}

/** The arguments of a recorder's dispatch. */
export type Call = Parameters<Recorder['dispatch']>;

/** Times of a sequence of dispatches in microseconds: the best of three of `repeats` in one pass, after `warmMs` of them. */
export async function sequenceUs(
  gpu: Gpu,
  clock: PassClock,
  calls: readonly Call[],
  repeats: number,
  warmMs: number,
): Promise<number> {
  const program = createProgram(gpu, 'sequence');
  for (const call of calls) program.recorder.dispatch(...call);
  const once = async () => {
    const us = await clock.time((pass) => {
      for (let i = 0; i < repeats; i++) program.encode(pass);
    });
    return us / repeats;
  };
  try {
    const began = performance.now();
    do await once();
    while (performance.now() - began < warmMs);
    return Math.min(await once(), await once(), await once());
  } finally {
    program.destroy();
  }
}
