// A checkpoint on the GPU: every matrix in rows padded to four elements, bf16 packed or f32, split where a binding ends.
// Not a loader of files (model-files.ts). Invariant: values are exact; the split depends on the device's limits alone.
import { allocate, release, upload, type View } from '../gpu/buffers.ts';
import type { Gpu } from '../gpu/device.ts';
import { padded } from '../gpu/kernel.ts';
import { ModelFileError } from '../lib/errors.ts';
import { decodeToF32 } from '../lib/half.ts';
import type { Architecture } from './config.ts';
import type { ModelFiles } from './model-files.ts';
import { ropeTables } from './rope.ts';
import { EMBEDDING, type LinearName, linearPath, linearShape, OUTPUT_HEAD } from './tensor-names.ts';
import { weightStorage } from './weight-chunks.ts';
import { allSettled, type Placement, uploadMatrices } from './weight-upload.ts';

/** [rows, columns] with row stride padded(columns), in one or more buffers of consecutive rows. */
export interface GpuMatrix {
  rows: number;
  columns: number;
  bf16: boolean;
  parts: { firstRow: number; rows: number; view: View }[];
}

/** A fused layer's columns in its output: `offset` is a multiple of four. */
export interface LinearOutput {
  target: LinearName;
  offset: number;
  width: number;
}

/** Linear layers that share an input, as one matrix. */
export interface LinearGroup {
  weight: GpuMatrix;
  inWidth: number;
  outWidth: number;
  outputs: LinearOutput[];
}

export const groupNames = ['qkv', 'o', 'gateUp', 'down'] as const;
export type GroupName = (typeof groupNames)[number];
export const groupTargets: Record<GroupName, readonly LinearName[]> = {
  qkv: ['q_proj', 'k_proj', 'v_proj'],
  o: ['o_proj'],
  gateUp: ['gate_proj', 'up_proj'],
  down: ['down_proj'],
};

export interface GpuLayer {
  groups: Record<GroupName, LinearGroup>;
  inputNorm: View;
  postNorm: View;
  /** [2, headDim]: q, k; ones for models without QK-norm (then not read). */
  qkGain: View;
}

export interface GpuModel {
  architecture: Architecture;
  embedding: GpuMatrix;
  head: GpuMatrix;
  layers: GpuLayer[];
  finalNorm: View;
  /** [positions, headDim / 2]: cos, sin. */
  rope: View;
  positions: number;
  /** Bytes of weights on the device. */
  bytes: number;
  destroy(): void;
}

export interface LoadOptions {
  /** Longest position that will be used; the RoPE table has this many rows. */
  positions: number;
  onProgress?: (bytesDone: number, bytesTotal: number) => void;
}

/** Bytes of all weights as the files hold them. */
export function weightBytes(files: ModelFiles): number {
  return [...files.tensors.values()].reduce((sum, ref) => sum + ref.lengthBytes, 0);
}

function emptyMatrix(gpu: Gpu, label: string, rows: number, columns: number, bf16: boolean): GpuMatrix {
  const rowBytes = padded(columns) * (bf16 ? 2 : 4);
  const { maxBufferSize, maxStorageBufferBindingSize } = gpu.identity.limits;
  const perPart = Math.floor(Math.min(maxBufferSize, maxStorageBufferBindingSize) / rowBytes / 4) * 4;
  if (perPart < 4) {
    const message = `placing ${label}: four rows of ${rowBytes} bytes do not fit the adapter's binding limit ${maxStorageBufferBindingSize}. Use another adapter.`;
    throw new ModelFileError('row-too-large', message);
  }
  const parts: GpuMatrix['parts'] = [];
  for (let firstRow = 0; firstRow < rows; firstRow += perPart) {
    const count = Math.min(perPart, rows - firstRow);
    parts.push({ firstRow, rows: count, view: allocate(gpu, `${label}[${firstRow}]`, count * rowBytes) });
  }
  return { rows, columns, bf16, parts };
}

/**
 * Puts a checkpoint on the device. Fused matrices (q, k, v; gate, up) stack their layers' rows, each padded to four.
 * @throws ModelFileError for a head width that is no multiple of four, DeviceError for what does not fit.
 */
export async function loadWeights(gpu: Gpu, files: ModelFiles, options: LoadOptions): Promise<GpuModel> {
  const arch = files.architecture;
  if (arch.headDim % 4 !== 0) {
    const message = `loading ${files.source.label}/config.json: head_dim is ${arch.headDim}; the kernels need a multiple of 4. Use another model.`;
    throw new ModelFileError('head-width', message);
  }
  const views: View[] = [];
  const placements: Placement[] = [];
  const vectors: { name: string; view: View; at: number }[] = [];
  const total = weightBytes(files);
  let done = 0;
  const onBytes = (bytes: number) => {
    done += bytes;
    options.onProgress?.(done, total);
  };

  function place(made: GpuMatrix): GpuMatrix {
    views.push(...made.parts.map((part) => part.view));
    return made;
  }
  function matrix(name: string): GpuMatrix {
    const ref = files.weight(name);
    const made = place(emptyMatrix(gpu, name, ref.shape[0]!, ref.shape[1]!, weightStorage(ref) === 'bf16'));
    placements.push({ ref, matrix: made, atRow: 0 });
    return made;
  }
  /** One view for vectors of a width, each in rows padded to four. */
  function vectorView(label: string, width: number, names: readonly string[]): View {
    const view = allocate(gpu, label, Math.max(1, names.length) * padded(width) * 4);
    views.push(view);
    for (const [i, name] of names.entries()) vectors.push({ name, view, at: i * padded(width) * 4 });
    return view;
  }
  function gains(stem: string): View {
    if (arch.qkNorm) {
      const names = ['q_norm', 'k_norm'].map((name) => `${stem}.self_attn.${name}.weight`);
      return vectorView(`${stem}.qk_norm`, arch.headDim, names);
    }
    const view = allocate(gpu, `${stem}.qk_norm`, 2 * arch.headDim * 4);
    views.push(view);
    upload(gpu, view, new Float32Array(2 * arch.headDim).fill(1));
    return view;
  }
  function group(layer: number, name: GroupName): LinearGroup {
    const refs = groupTargets[name].map((target) => ({
      target,
      ref: files.weight(`model.layers.${layer}.${linearPath(target)}.weight`),
      width: linearShape(arch, target).outFeatures,
    }));
    const inWidth = linearShape(arch, groupTargets[name][0]!).inFeatures;
    const outWidth = refs.reduce((sum, { width }) => sum + padded(width), 0);
    const bf16 = refs.every(({ ref }) => weightStorage(ref) === 'bf16');
    const rows = outWidth - padded(refs.at(-1)!.width) + refs.at(-1)!.width;
    const weight = place(emptyMatrix(gpu, `layers.${layer}.${name}`, rows, inWidth, bf16));
    const outputs: LinearOutput[] = [];
    let offset = 0;
    for (const { target, ref, width } of refs) {
      placements.push({ ref, matrix: weight, atRow: offset });
      outputs.push({ target, offset, width });
      offset += padded(width);
    }
    return { weight, inWidth, outWidth, outputs };
  }
  function layerOf(layer: number): GpuLayer {
    const stem = `model.layers.${layer}`;
    const norm = (name: string) => vectorView(`${stem}.${name}`, arch.hiddenSize, [`${stem}.${name}.weight`]);
    return {
      groups: {
        qkv: group(layer, 'qkv'),
        o: group(layer, 'o'),
        gateUp: group(layer, 'gateUp'),
        down: group(layer, 'down'),
      },
      inputNorm: norm('input_layernorm'),
      postNorm: norm('post_attention_layernorm'),
      qkGain: gains(stem),
    };
  }
  async function fillVector({ name, view, at }: (typeof vectors)[number]): Promise<void> {
    const ref = files.weight(name);
    for await (const chunk of files.readWeightChunks(ref, ref.lengthBytes * 2)) {
      const bytes = new Uint8Array(chunk.values.buffer, chunk.values.byteOffset, chunk.values.byteLength);
      const values = decodeToF32(bytes, chunk.storage === 'bf16' ? 'BF16' : 'F32');
      upload(gpu, view, values, at + chunk.offsetElements * 4);
    }
    onBytes(ref.lengthBytes);
  }

  const destroy = () => {
    for (const view of views) release(gpu, view);
  };
  try {
    const embedding = matrix(EMBEDDING);
    const layers = Array.from({ length: arch.layers }, (_, layer) => layerOf(layer));
    const finalNorm = vectorView('model.norm', arch.hiddenSize, ['model.norm.weight']);
    const head = arch.tied ? embedding : matrix(OUTPUT_HEAD);
    const rope = ropeView(gpu, arch, options.positions);
    views.push(rope);
    await allSettled(vectors.map(fillVector));
    await uploadMatrices(gpu, files, placements, onBytes);
    gpu.check();
    const bytes = views.reduce((sum, view) => sum + view.size, 0);
    return {
      architecture: arch,
      embedding,
      head,
      layers,
      finalNorm,
      rope,
      positions: options.positions,
      bytes,
      destroy,
    };
  } catch (error) {
    destroy();
    throw error;
  }
}

function ropeView(gpu: Gpu, arch: Architecture, positions: number): View {
  const { cos, sin } = ropeTables(arch, positions);
  const pairs = new Float32Array(cos.length * 2);
  for (let i = 0; i < cos.length; i++) {
    pairs[i * 2] = cos[i]!;
    pairs[i * 2 + 1] = sin[i]!;
  }
  const view = allocate(gpu, 'rope', pairs.byteLength);
  upload(gpu, view, pairs);
  return view;
}
