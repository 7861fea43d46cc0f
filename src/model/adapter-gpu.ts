// LoRA parameters on the GPU: one flat f32 buffer in a fixed layout that parameters, gradients and moments share.
// Not the PEFT file (adapter-files.ts). Invariant: every tensor starts at a multiple of 64 elements; padding is zero in
// parameters, gradients and moments alike, and stays zero under AdamW.
import { allocate, readF32, release, subview, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import type { Architecture } from './config.ts';
import { type Adapter, type LoraConfig, loraScale } from './lora.ts';
import { type LinearName, linearPath, linearShape } from './tensor-names.ts';
import { type GroupName, groupNames, groupTargets } from './weights.ts';

/** The adapted layers of one fused group: their A stacked [targets * rank, in], each B [out, rank]; elements. */
export interface LoraGroupLayout {
  aOffset: number;
  inWidth: number;
  targets: { target: LinearName; bOffset: number; outWidth: number }[];
}

export interface AdapterLayout {
  config: LoraConfig;
  scale: number;
  /** The rank as stored: a multiple of four, with zero rows in A and zero columns in B. */
  rank: number;
  layers: Partial<Record<GroupName, LoraGroupLayout>>[];
  /** Elements of the flat buffer. */
  length: number;
}

const alignment = 64;

/** Where every tensor lies: by layer, by group, the group's A and then its B in PEFT's order. */
export function adapterLayout(arch: Architecture, config: LoraConfig): AdapterLayout {
  const rank = padded(config.rank);
  let length = 0;
  const take = (elements: number) => {
    const at = length;
    length = Math.ceil((length + elements) / alignment) * alignment;
    return at;
  };
  const layers = Array.from({ length: arch.layers }, () => {
    const groups: Partial<Record<GroupName, LoraGroupLayout>> = {};
    for (const name of groupNames) {
      const targets = groupTargets[name].filter((target) => config.targets.includes(target));
      if (targets.length === 0) continue;
      const inWidth = linearShape(arch, targets[0]!).inFeatures;
      const aOffset = take(targets.length * rank * padded(inWidth));
      groups[name] = {
        aOffset,
        inWidth,
        targets: targets.map((target) => {
          const outWidth = linearShape(arch, target).outFeatures;
          return { target, bOffset: take(outWidth * rank), outWidth };
        }),
      };
    }
    return groups;
  });
  return { config, scale: loraScale(config), rank, layers, length };
}

/** Views of one flat buffer: the whole, and each group's A and B. */
export interface AdapterViews {
  flat: View;
  layers: Partial<Record<GroupName, { a: View; b: View[] }>>[];
  /** Buffers that were made from the flat one and go with it. */
  copies?: View[];
}

/** Allocates a zero-filled flat buffer in a layout, with a view of each tensor. */
export function allocateAdapter(gpu: Gpu, layout: AdapterLayout, label: string): AdapterViews {
  const flat = allocate(gpu, label, layout.length * 4);
  const layers = layout.layers.map((groups) =>
    Object.fromEntries(
      Object.entries(groups).map(([name, group]) => [
        name,
        {
          a: subview(gpu, flat, group.aOffset * 4, group.targets.length * layout.rank * padded(group.inWidth) * 4),
          b: group.targets.map(({ bOffset, outWidth }) => subview(gpu, flat, bOffset * 4, outWidth * layout.rank * 4)),
        },
      ]),
    ),
  );
  return { flat, layers };
}

export function releaseAdapter(gpu: Gpu, views: AdapterViews): void {
  for (const view of [views.flat, ...(views.copies ?? [])]) release(gpu, view);
}

/**
 * Calls `visit` for each run of a tensor's values that lies in one piece, with its place in the flat buffer and in the
 * named tensor: the whole tensor, or a row where rows are padded.
 */
function eachRun(
  layout: AdapterLayout,
  visit: (name: string, flatOffset: number, tensorOffset: number, width: number, length: number) => void,
): void {
  const { rank } = layout.config;
  for (const [layer, groups] of layout.layers.entries()) {
    for (const group of Object.values(groups)) {
      for (const [t, { target, bOffset, outWidth }] of group.targets.entries()) {
        const stem = `layers.${layer}.${linearPath(target)}.lora_`;
        const { inWidth } = group;
        const tensors = [
          { name: `${stem}A`, from: group.aOffset + t * layout.rank * padded(inWidth), rows: rank, width: inWidth },
          { name: `${stem}B`, from: bOffset, rows: outWidth, width: rank },
        ];
        for (const [part, { name, from, rows, width }] of tensors.entries()) {
          const stride = part === 0 ? padded(inWidth) : layout.rank;
          const length = rows * width;
          if (stride === width) visit(name, from, 0, length, length);
          else for (let row = 0; row < rows; row++) visit(name, from + row * stride, row * width, width, length);
        }
      }
    }
  }
}

/** Host tensors to the flat layout. */
export function flatten(layout: AdapterLayout, tensors: ReadonlyMap<string, Float32Array>): Float32Array<ArrayBuffer> {
  const flat = new Float32Array(layout.length);
  eachRun(layout, (name, flatOffset, tensorOffset, width) => {
    flat.set(tensors.get(name)!.subarray(tensorOffset, tensorOffset + width), flatOffset);
  });
  return flat;
}

/** The flat layout to host tensors, in the layout's order; a tensor that lies in one piece is a view of `flat`. */
export function unflatten(layout: AdapterLayout, flat: Float32Array): Map<string, Float32Array> {
  const tensors = new Map<string, Float32Array>();
  eachRun(layout, (name, flatOffset, tensorOffset, width, length) => {
    if (width === length) {
      tensors.set(name, flat.subarray(flatOffset, flatOffset + length));
      return;
    }
    if (!tensors.has(name)) tensors.set(name, new Float32Array(length));
    tensors.get(name)!.set(flat.subarray(flatOffset, flatOffset + width), tensorOffset);
  });
  return tensors;
}

/** Writes host tensors to a device buffer. */
export function uploadTensors(
  gpu: Gpu,
  layout: AdapterLayout,
  views: AdapterViews,
  tensors: ReadonlyMap<string, Float32Array>,
): void {
  upload(gpu, views.flat, flatten(layout, tensors));
}

/** Reads a device buffer as host tensors. */
export async function downloadTensors(
  gpu: Gpu,
  layout: AdapterLayout,
  views: AdapterViews,
): Promise<Map<string, Float32Array>> {
  return unflatten(layout, await readF32(gpu, views.flat, layout.length));
}

/** An adapter ready for the forward pass. */
export interface GpuAdapter {
  layout: AdapterLayout;
  views: AdapterViews;
}

/** Puts an adapter on the device. */
export function loadGpuAdapter(gpu: Gpu, arch: Architecture, adapter: Adapter): GpuAdapter {
  const layout = adapterLayout(arch, adapter.config);
  const views = allocateAdapter(gpu, layout, 'adapter');
  uploadTensors(gpu, layout, views, adapter.tensors);
  return { layout, views };
}
