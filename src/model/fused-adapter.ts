// An adapter as the fused pass reads it: B of all groups by rows of the rank, in one buffer.
// Not the parameters: a copy, made again by every pass that may follow an update. Invariant: columns without LoRA are
// zero, so they add zero.
import { allocate, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { foldedGrid, padded } from '../gpu/kernel.ts';
import type { Recorder } from '../gpu/recorder.ts';
import { loraTranspose, transposeColumns } from '../kernels/lora-transpose.ts';
import type { AdapterLayout } from './adapter-gpu.ts';
import type { ActiveAdapter } from './linear.ts';
import { type GpuModel, type GroupName, groupNames } from './weights.ts';

/** Where a group's B lies in the copy, and which columns belong to which target. */
export interface FusedGroup {
  bStride4: number;
  bOffset4: number;
  /** First column of the second and the third adapted target; past the last where there is none. */
  split1: number;
  split2: number;
  /** Targets times the stored rank: the width of z. */
  width: number;
}

interface FusedAdapter {
  copy: View;
  table: View;
  entries: number;
  groups: Partial<Record<GroupName, FusedGroup>>[];
}

const byFlat = new WeakMap<GPUBuffer, FusedAdapter>();

function build(gpu: Gpu, model: GpuModel, layout: AdapterLayout): FusedAdapter {
  const { rank } = layout;
  const table: number[] = [];
  let length = 0;
  const groups = layout.layers.map((adapted, layer) => {
    const made: Partial<Record<GroupName, FusedGroup>> = {};
    for (const name of groupNames) {
      const lora = adapted[name];
      if (!lora) continue;
      const { weight, outputs } = model.layers[layer]!.groups[name];
      const stride = padded(weight.rows);
      const starts = lora.targets.map(({ target }) => outputs.find((output) => output.target === target)!.offset);
      for (const [t, { bOffset, outWidth }] of lora.targets.entries()) {
        for (let n = 0; n < outWidth; n += transposeColumns) {
          table.push(bOffset + n * rank, length + starts[t]! + n, stride, Math.min(transposeColumns, outWidth - n));
        }
      }
      made[name] = {
        bStride4: stride / 4,
        bOffset4: length / 4,
        split1: starts[1] ?? weight.rows,
        split2: starts[2] ?? weight.rows,
        width: lora.targets.length * rank,
      };
      length += rank * stride;
    }
    return made;
  });
  const copy = allocate(gpu, 'adapter.transposed', length * 4);
  const view = allocate(gpu, 'adapter.table', table.length * 4);
  upload(gpu, view, Uint32Array.from(table));
  return { copy, table: view, entries: table.length / 4, groups };
}

/** The copy of an adapter's B; made on first use, and released with its parameters (`releaseAdapter`). */
export function fusedAdapter(gpu: Gpu, model: GpuModel, adapter: ActiveAdapter): FusedAdapter {
  const key = adapter.views.flat.buffer;
  let made = byFlat.get(key);
  if (!made) {
    byFlat.set(key, (made = build(gpu, model, adapter.layout)));
    adapter.views.copies = [made.copy, made.table];
  }
  return made;
}

/** Records the copy of the parameters as they are now. */
export function recordTranspose(r: Recorder, adapter: ActiveAdapter, fused: FusedAdapter): void {
  r.dispatch(
    loraTranspose,
    [fused.table, adapter.views.flat, fused.copy],
    { entries: fused.entries, rank: adapter.layout.rank },
    foldedGrid(fused.entries),
  );
}

export type { FusedAdapter };
