// AdamW, the gradient tree's additions and the norm clip on flat device buffers.
// Not a schedule: scalars come from the host. Invariant: moments have the adapter's layout; a restore brings back the
// exact bits that state() read.
import { allocate, readF32, release } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { ceilDiv, foldedGrid } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { adamw } from '../kernels/adamw.ts';
import type { AdamwScalars } from '../kernels/adamw-reference.ts';
import { addInto } from '../kernels/add-into.ts';
import { normBlocks } from '../kernels/norm-blocks.ts';
import { normFinish } from '../kernels/norm-finish.ts';
import {
  type AdapterLayout,
  type AdapterViews,
  allocateAdapter,
  downloadTensors,
  uploadTensors,
} from '../model/adapter-gpu.ts';
import { normBlockElements } from './tree.ts';

/** AdamW's moments under the adapter's tensor names. */
export interface OptimizerState {
  m: ReadonlyMap<string, Float32Array>;
  v: ReadonlyMap<string, Float32Array>;
}

export interface Optimizer {
  /** into += from. */
  recordAdd(r: Recorder, into: AdapterViews, from: AdapterViews): void;
  /** Norm, clip and update of the parameters by a gradient, which is left as it is. */
  recordUpdate(r: Recorder, gradient: AdapterViews, scalars: AdamwScalars): void;
  /** The norm of the last update's gradient, before clipping. */
  readNorm(): Promise<number>;
  state(): Promise<OptimizerState>;
  restore(state: OptimizerState): void;
  destroy(): void;
}

/** Makes an optimizer for parameters in a layout, with moments zero. `maxNorm` 0 switches clipping off. */
export function createOptimizer(gpu: Gpu, layout: AdapterLayout, parameters: AdapterViews, maxNorm: number): Optimizer {
  const count = layout.length;
  const m = allocateAdapter(gpu, layout, 'moments.m');
  const v = allocateAdapter(gpu, layout, 'moments.v');
  const blocks = ceilDiv(count, normBlockElements);
  const partial = allocate(gpu, 'norm.blocks', blocks * 4);
  const norm = allocate(gpu, 'norm', 8);
  const flatGrid = (elements: number) => foldedGrid(ceilDiv(elements, 64));
  return {
    recordAdd(r, into, from) {
      r.dispatch(addInto, [from.flat, into.flat], { count }, flatGrid(count / 4));
    },
    recordUpdate(r, gradient, scalars) {
      const blockParams = { count, offset: 0, blocks, blockOffset: 0 };
      r.dispatch(normBlocks, [gradient.flat, partial], blockParams, foldedGrid(blocks));
      r.dispatch(normFinish, [partial, norm], { blocks, levels: Math.ceil(Math.log2(blocks)), maxNorm }, [1, 1, 1]);
      const views = [norm, gradient.flat, parameters.flat, m.flat, v.flat];
      r.dispatch(adamw, views, { count, offset: 0, ...scalars }, flatGrid(count));
    },
    readNorm: async () => (await readF32(gpu, norm, 1))[0]!,
    async state() {
      const [first, second] = await Promise.all([downloadTensors(gpu, layout, m), downloadTensors(gpu, layout, v)]);
      return { m: first, v: second };
    },
    restore(state) {
      uploadTensors(gpu, layout, m, state.m);
      uploadTensors(gpu, layout, v, state.v);
    },
    destroy() {
      for (const view of [m.flat, v.flat, partial, norm]) release(gpu, view);
    },
  };
}
