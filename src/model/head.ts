// The vocabulary head: final norm and logits of chosen rows, a chunk at a time.
// Not a loss. Invariant: [tokens, vocabulary] never exists; a chunk holds at most `rows` rows, and a row's logits do
// not depend on the chunk it is in.
import { allocate, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { gatherGrid, gatherRows } from '../kernels/gather-rows.ts';
import { matmulMode } from '../kernels/matmul.ts';
import { createRowWork, type RowWork } from '../kernels/vocabulary-row.ts';
import type { Architecture } from './config.ts';
import { recordNorm } from './forward.ts';
import { evenChunks, headRows } from './head-rows.ts';
import { applyMatrix, type Rows } from './linear.ts';
import type { GpuModel } from './weights.ts';
import type { Workspace } from './workspace.ts';

export interface Head {
  /** Rows of a chunk. */
  rows: number;
  /** Most rows in all that one call may name. */
  capacity: number;
  index: View;
  gathered: Rows;
  normed: Rows;
  logits: Rows;
  /** For the backward pass. */
  dNormed: Rows;
  dGathered: Rows;
  /** What draws and log-probs of a chunk need; it knows the ids that exist. */
  work: RowWork;
  destroy(): void;
}

/**
 * Allocates the head's buffers: rows of a chunk as `headRows` gives them.
 * Ids from `vocabulary` on do not exist: they are never drawn and take no part in log-probs.
 */
export function createHead(
  gpu: Gpu,
  arch: Architecture,
  capacity: number,
  vocabulary: number = arch.vocabSize,
  logitBytes?: number,
): Head {
  const stride = padded(arch.vocabSize);
  const rows = headRows(gpu, stride, capacity, logitBytes);
  const views: View[] = [];
  const take = (label: string, elements: number) => {
    const view = allocate(gpu, label, elements * 4);
    views.push(view);
    return view;
  };
  const hidden = padded(arch.hiddenSize);
  const work = createRowWork(gpu, rows, vocabulary);
  return {
    work,
    rows,
    capacity,
    index: take('head.index', capacity),
    gathered: { view: take('head.gathered', rows * hidden), stride: hidden },
    normed: { view: take('head.normed', rows * hidden), stride: hidden },
    logits: { view: take('head.logits', rows * stride), stride },
    dNormed: { view: take('head.dNormed', rows * hidden), stride: hidden },
    dGathered: { view: take('head.dGathered', rows * hidden), stride: hidden },
    destroy: () => {
      work.destroy();
      for (const view of views) release(gpu, view);
    },
  };
}

/** Uploads the rows of the pass whose logits are wanted, in order. Submits what was recorded before. */
export function chooseRows(gpu: Gpu, r: Recorder, head: Head, rows: Uint32Array<ArrayBuffer>): void {
  r.submit();
  upload(gpu, head.index, rows);
}

/** The chunks of `count` chosen rows: [first, rows) pairs. */
export function headChunks(head: Head, count: number): { first: number; rows: number }[] {
  return evenChunks(count, head.rows);
}

/** Records the logits of one chunk of chosen rows into `head.logits` [rows, vocabulary], f32. */
export function recordLogits(
  r: Recorder,
  model: GpuModel,
  workspace: Workspace,
  head: Head,
  chunk: { first: number; rows: number },
): void {
  const c4 = head.gathered.stride / 4;
  r.dispatch(
    gatherRows,
    [head.index, workspace.output.view, head.gathered.view],
    { rows: chunk.rows, c4, xStride4: workspace.output.stride / 4, outStride4: c4, indexOffset: chunk.first },
    gatherGrid(chunk.rows, c4),
    { SCATTER: 0 },
  );
  recordNorm(r, model.architecture, head.gathered, model.finalNorm, head.normed, chunk.rows);
  applyMatrix(r, model.head, head.normed, chunk.rows, head.logits, matmulMode.overwrite);
}
