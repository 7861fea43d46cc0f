// GPU time of every dispatch, from timestamp queries, and its Chrome trace file.
// Not a CPU profiler: it tells what the device did, not when the host asked for it. Invariant: while nobody measures,
// nothing is recorded and passes are shared; while somebody does, dispatches get a pass each and the same bits.
import { DeviceError } from '../lib/errors.ts';
import type { Gpu } from './device.ts';

/** One dispatch on the device. Times are nanoseconds of the device's own clock. */
export interface Span {
  kernel: string;
  /** What the program was doing, as `Timing.phase` last said. */
  phase: string;
  startNs: number;
  durationNs: number;
  grid: readonly [number, number, number];
}

/** Measures all dispatches of a device from `startTiming` to `stop`. */
export interface Timing {
  /** Names what follows; spans recorded from now on carry it. */
  phase(name: string): void;
  /** Waits for the spans submitted so far and takes them out, in the order of their start. */
  take(): Promise<Span[]>;
  /** Ends the measuring. */
  stop(): void;
}

/** What a recorder asks of the timing while it records one command buffer. */
export interface PassTimer {
  /** The timestamps of the next dispatch's pass, or null if this buffer has no more room. */
  next(kernel: string, grid: readonly [number, number, number]): GPUComputePassTimestampWrites | null;
  /** Adds the commands that copy the timestamps out. Call once, before the encoder is finished. */
  resolve(encoder: GPUCommandEncoder): void;
  /** Call after the submit. */
  submitted(): void;
}

interface Sink {
  phase: string;
  spans: Span[];
  pending: Promise<void>[];
  free: { set: GPUQuerySet; resolved: GPUBuffer }[];
}

const sinks = new WeakMap<GPUDevice, Sink>();

/** Dispatches of one command buffer that can be measured: a query set holds 4,096 timestamps. */
const capacity = 2048;

/**
 * Starts measuring every dispatch that is recorded on a device from now on.
 * @throws DeviceError `no-timestamps` where the adapter has no timestamp queries, `timing-twice` if already started.
 */
export function startTiming(gpu: Gpu): Timing {
  if (!gpu.device.features.has('timestamp-query')) {
    const message = `measuring GPU time: ${gpu.identity.device} has no timestamp-query; wanted an adapter with it. Run without a trace.`;
    throw new DeviceError('no-timestamps', message);
  }
  if (sinks.has(gpu.device)) {
    throw new DeviceError('timing-twice', 'measuring GPU time: the device is measured already; stop that first.');
  }
  const sink: Sink = { phase: '', spans: [], pending: [], free: [] };
  sinks.set(gpu.device, sink);
  return {
    phase(name) {
      sink.phase = name;
    },
    async take() {
      while (sink.pending.length > 0) await gpu.wait('reading GPU timestamps', Promise.all(sink.pending.splice(0)));
      return sink.spans.splice(0).sort((a, b) => a.startNs - b.startNs);
    },
    stop() {
      sinks.delete(gpu.device);
      for (const { set, resolved } of sink.free) {
        set.destroy();
        resolved.destroy();
      }
    },
  };
}

/** The timer of a new command buffer, or null while the device is not measured. */
export function passTimer(gpu: Gpu): PassTimer | null {
  const sink = sinks.get(gpu.device);
  if (!sink) return null;
  const { device } = gpu;
  const own = sink.free.pop() ?? {
    set: device.createQuerySet({ type: 'timestamp', count: capacity * 2 }),
    resolved: device.createBuffer({
      label: 'timestamps',
      size: capacity * 16,
      usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
    }),
  };
  const spans: Pick<Span, 'kernel' | 'phase' | 'grid'>[] = [];
  let staging: GPUBuffer | null = null;
  return {
    next(kernel, grid) {
      if (spans.length === capacity) return null;
      const index = spans.push({ kernel, phase: sink.phase, grid }) - 1;
      return { querySet: own.set, beginningOfPassWriteIndex: index * 2, endOfPassWriteIndex: index * 2 + 1 };
    },
    resolve(encoder) {
      if (spans.length === 0) return;
      const bytes = spans.length * 16;
      staging = device.createBuffer({
        label: 'timestamps',
        size: bytes,
        usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
      });
      encoder.resolveQuerySet(own.set, 0, spans.length * 2, own.resolved, 0);
      encoder.copyBufferToBuffer(own.resolved, 0, staging, 0, bytes);
    },
    submitted() {
      sink.free.push(own);
      if (staging) sink.pending.push(readSpans(staging, spans, sink));
    },
  };
}

async function readSpans(
  staging: GPUBuffer,
  spans: readonly Pick<Span, 'kernel' | 'phase' | 'grid'>[],
  sink: Sink,
): Promise<void> {
  await staging.mapAsync(GPUMapMode.READ);
  const times = new BigUint64Array(staging.getMappedRange());
  for (const [i, span] of spans.entries()) {
    const [start, end] = [times[i * 2]!, times[i * 2 + 1]!];
    sink.spans.push({ ...span, startNs: Number(start), durationNs: Number(end - start) });
  }
  staging.destroy();
}

/** Sums by kernel, the longest first. Milliseconds. */
export function summarise(spans: readonly Span[]): { kernel: string; dispatches: number; ms: number }[] {
  const byKernel = new Map<string, { kernel: string; dispatches: number; ms: number }>();
  for (const { kernel, durationNs } of spans) {
    const entry = byKernel.get(kernel) ?? { kernel, dispatches: 0, ms: 0 };
    entry.dispatches += 1;
    entry.ms += durationNs / 1e6;
    byKernel.set(kernel, entry);
  }
  return [...byKernel.values()].sort((a, b) => b.ms - a.ms || a.kernel.localeCompare(b.kernel));
}

/** Spans in the Chrome trace format (chrome://tracing, Perfetto): one complete event a dispatch, one track a phase. */
export function chromeTrace(spans: readonly Span[], device: string): string {
  const origin = spans.reduce((first, { startNs }) => Math.min(first, startNs), Number.POSITIVE_INFINITY);
  const phases = [...new Set(spans.map(({ phase }) => phase))];
  const names = phases.map((phase, tid) => ({ name: 'thread_name', ph: 'M', pid: 1, tid, args: { name: phase } }));
  const events = spans.map(({ kernel, phase, startNs, durationNs, grid }) => ({
    name: kernel,
    cat: phase,
    ph: 'X',
    ts: (startNs - origin) / 1000,
    dur: durationNs / 1000,
    pid: 1,
    tid: phases.indexOf(phase),
    args: { grid: grid.join('x') },
  }));
  const process = { name: 'process_name', ph: 'M', pid: 1, args: { name: device } };
  return `${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: [process, ...names, ...events] })}\n`;
}
