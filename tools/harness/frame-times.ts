// From a Chromium trace: what the page's main thread works in each frame, and how far apart the frames are.
// Not a profile. Invariant: the work of a frame is the time of all tasks of the page's main thread from one frame's
// begin to the next, whatever they did, in processor time: a busy machine lengthens the interval, not the work.

export interface TraceEvent {
  name: string;
  cat: string;
  ph: string;
  pid: number;
  tid: number;
  /** Microseconds. */
  ts: number;
  dur?: number;
  /** Microseconds that the thread computed in `dur`: what others take of the processor does not count. */
  tdur?: number;
  args?: { name?: string; data?: { documentLoaderURL?: string } };
}

/** The value below which a share of the numbers lies; NaN of none. */
function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

const spread = (values: readonly number[]) =>
  `median ${quantile(values, 0.5).toFixed(2)}, p95 ${quantile(values, 0.95).toFixed(2)}, most ${Math.max(...values).toFixed(2)}`;

/** The main thread with the most tasks: the page that was scrolled. */
function mainThread(events: readonly TraceEvent[]): (event: TraceEvent) => boolean {
  const names = events.filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain');
  const busy = ({ pid, tid }: TraceEvent) =>
    events.filter((event) => event.pid === pid && event.tid === tid && event.name === 'RunTask').length;
  const [chosen] = names.sort((a, b) => busy(b) - busy(a));
  if (!chosen) {
    throw new Error("reading the trace: found no CrRendererMain; wanted the page's main thread. Use another Chromium.");
  }
  return ({ pid, tid }) => pid === chosen.pid && tid === chosen.tid;
}

/** Milliseconds a frame in words: main thread in all, its parts (script, style, layout, paint), and the interval. */
export function frameTimes(events: readonly TraceEvent[]): string {
  const main = events.filter(mainThread(events)).sort((a, b) => a.ts - b.ts);
  const begins = main.filter(({ name, ph }) => name === 'AnimationFrame' && ph === 'b').map(({ ts }) => ts);
  const perFrame = (names: readonly string[]) => {
    const sums = begins.slice(0, -1).map(() => 0);
    let frame = -1;
    let until = 0;
    for (const { name, ts, dur = 0, tdur = 0 } of main) {
      while (frame + 1 < begins.length && begins[frame + 1]! <= ts) frame += 1;
      // A part inside another of the same kind counts once.
      if (frame < 0 || frame >= sums.length || !names.includes(name) || ts < until) continue;
      sums[frame]! += tdur / 1000;
      until = ts + dur;
    }
    return sums;
  };
  const parts = {
    script: ['FunctionCall', 'FireAnimationFrame', 'EventDispatch'],
    style: ['UpdateLayoutTree'],
    layout: ['Layout'],
    paint: ['PrePaint', 'Paint', 'Layerize', 'Commit'],
  };
  const shares = Object.entries(parts).map(([part, names]) => `${part} ${quantile(perFrame(names), 0.5).toFixed(2)}`);
  const gaps = begins.slice(1).map((ts, i) => (ts - begins[i]!) / 1000);
  return (
    `${begins.length} frames; main thread ms a frame: ${spread(perFrame(['RunTask']))} ` +
    `(${shares.join(', ')}); interval ms: ${spread(gaps)}`
  );
}
