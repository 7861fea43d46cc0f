// What each kernel of a decode step costs where it stands: how much shorter a step is without it, beside what one of its
// dispatches takes when it runs again and again. The difference is what launching, draining and cold caches cost.
// Not a trace: a timestamp around every dispatch keeps dispatches apart; nor the host's clock, which would tell how fast
// dispatches are sent. Invariant: the step is the decoder's own, its dispatches in its order; the layers without a kernel
// compute nonsense, in the same time as sense, and the draw, where that is not so, is left out while they are measured.
import { allocate, release, upload, type View } from '../src/gpu/buffers.ts';
import { createRecorder, type Recorder } from '../src/gpu/recorder.ts';
import { keyRow, keyWords } from '../src/kernels/sample.ts';
import { fusedAdapter, recordTranspose } from '../src/model/fused-adapter.ts';
import { chunksAt, recordFusedPass } from '../src/model/fused-forward.ts';
import { createHead, recordLogits } from '../src/model/head.ts';
import { recordDraw } from '../src/model/head-draw.ts';
import { runsFused } from '../src/model/matrix-weights.ts';
import { createWorkspace } from '../src/model/workspace.ts';
import { type Call, createPassClock, sequenceUs } from './pass-clock.ts';
import { type Bench, sampling } from './steps.ts';

export interface PartFigure {
  kernel: string;
  dispatches: number;
  /** Microseconds that a step is shorter without the kernel's dispatches, and of each. */
  usInStep: number;
  usEach: number;
  /** Microseconds of one of its dispatches, the mean of different ones, each run again and again. */
  usAlone: number;
}

export interface PartsFigure {
  batch: number;
  context: number;
  /** Of one step's dispatches, back to back. */
  stepMs: number;
  parts: PartFigure[];
}

/** Dispatches of one kind that are sent together: the host must not be what is measured. */
const inARow = 100;

/** The dispatches of a decode step on buffers of their own, which `destroy` frees. */
function decodeStep({ gpu, model, trainer }: Bench, batch: number, context: number) {
  const { adapter } = trainer;
  const workspace = createWorkspace(gpu, model.architecture, adapter.layout, {
    rows: batch,
    slots: batch,
    cacheLength: context,
    training: false,
    fused: true,
  });
  const head = createHead(gpu, model.architecture, batch);
  const views: View[] = [];
  const take = (words: number) => {
    const view = allocate(gpu, 'parts', words * 4);
    views.push(view);
    return view;
  };
  const draws = { keys: take(batch * keyWords), ids: take(batch), truncated: take(batch), stats: take(batch * 4) };
  const each = Array.from({ length: batch }, (_, i) => i);
  upload(
    gpu,
    workspace.tokens,
    Uint32Array.from(each, (i) => i + 5),
  );
  upload(gpu, workspace.meta, Uint32Array.from(each.flatMap((slot) => [slot, context - 1])));
  upload(gpu, head.index, Uint32Array.from(each));
  const keys = new Uint32Array(batch * keyWords);
  for (const i of each) keys.set(keyRow({ seed: 1, step: 1, group: 0, member: i, position: context }), i * keyWords);
  upload(gpu, draws.keys, keys);
  const recorder = createRecorder(gpu);
  recordTranspose(recorder, adapter, fusedAdapter(gpu, model, adapter));
  recorder.submit();
  const calls: Call[] = [];
  const r: Recorder = { ...recorder, dispatch: (...call) => calls.push(call) };
  const attention = { chunks: chunksAt(context - 1) };
  recordFusedPass({ r, gpu, model, workspace, adapter, rows: batch, attention });
  recordLogits(r, model, workspace, head, { first: 0, rows: batch });
  const drawFrom = calls.length;
  recordDraw(r, head, { first: 0, rows: batch }, draws, sampling);
  const destroy = () => {
    workspace.destroy();
    head.destroy();
    for (const view of views) release(gpu, view);
  };
  return { calls, drawFrom, destroy };
}

/** The parts of a step of the first batch and context; null where the model does not run the fused pass. */
export async function measureParts(bench: Bench): Promise<PartsFigure | null> {
  const { gpu, model, settings } = bench;
  if (!runsFused(gpu, model)) return null;
  const batch = settings.batches.includes(settings.group) ? settings.group : settings.batches[0]!;
  const context = settings.contexts[0]!;
  const { calls, drawFrom, destroy } = decodeStep(bench, batch, context);
  const clock = createPassClock(gpu);
  const step = (some: readonly Call[], warmMs: number) => sequenceUs(gpu, clock, some, 4, warmMs);
  try {
    const stepMs = (await step(calls, 1000)) / 1000;
    const parts: PartFigure[] = [];
    const body = calls.slice(0, drawFrom);
    const measure = async (kernel: string, own: readonly Call[], all: readonly Call[]) => {
      // Both sides anew: clocks drift by more than what most kernels take.
      const whole = await step(all, 20);
      const without = await step(
        all.filter((call) => !own.includes(call)),
        20,
      );
      const usInStep = Math.min(whole, await step(all, 20)) - without;
      // One of each shape: layers share them.
      const shapes = new Map(own.map((call) => [JSON.stringify([call[0].name, call[2], call[3], call[4]]), call]));
      let alone = 0;
      for (const call of shapes.values()) {
        const many = Array.from({ length: inARow }, () => call);
        alone += (await sequenceUs(gpu, clock, many, 1, 10)) / inARow / shapes.size;
      }
      parts.push({ kernel, dispatches: own.length, usInStep, usEach: usInStep / own.length, usAlone: alone });
    };
    for (const kernel of new Set(body.map(([{ name }]) => name))) {
      await measure(
        kernel,
        body.filter(([{ name }]) => name === kernel),
        body,
      );
    }
    // The draw as one: its kernels take another path through what the one before left undone.
    await measure('(the draw)', calls.slice(drawFrom), calls);
    parts.sort((a, b) => b.usInStep - a.usInStep);
    return { batch, context, stepMs, parts };
  } finally {
    clock.destroy();
    destroy();
  }
}
