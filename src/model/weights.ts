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
import type { TensorRef } from './safetensors.ts';
import { EMBEDDING, type LinearName, linearPath, linearShape, OUTPUT_HEAD } from './tensor-names.ts';
import { weightStorage } from './weight-chunks.ts';

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

const chunkBytes = 64 * 2 ** 20;

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

/** Writes whole rows, whose values are bf16 bit patterns or f32, at a row of a matrix. */
function writeRows(
  gpu: Gpu,
  matrix: GpuMatrix,
  atRow: number,
  values: Uint16Array<ArrayBuffer> | Float32Array<ArrayBuffer>,
): void {
  const { columns } = matrix;
  const stride = padded(columns);
  const rows = values.length / columns;
  const Store = matrix.bf16 ? Uint16Array : Float32Array;
  let wide: Uint16Array<ArrayBuffer> | Float32Array<ArrayBuffer> = values;
  if (matrix.bf16 !== values instanceof Uint16Array) {
    wide = decodeToF32(
      new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
      'BF16',
    ) as Float32Array<ArrayBuffer>;
  }
  if (stride !== columns) {
    const padding = new Store(rows * stride);
    for (let r = 0; r < rows; r++) padding.set(wide.subarray(r * columns, (r + 1) * columns), r * stride);
    wide = padding;
  }
  const rowBytes = stride * Store.BYTES_PER_ELEMENT;
  for (const part of matrix.parts) {
    const first = Math.max(atRow, part.firstRow);
    const end = Math.min(atRow + rows, part.firstRow + part.rows);
    if (first >= end) continue;
    upload(
      gpu,
      part.view,
      wide.subarray((first - atRow) * stride, (end - atRow) * stride),
      (first - part.firstRow) * rowBytes,
    );
  }
}

/**
 * Puts a checkpoint on the device in chunks. Fused matrices (q, k, v; gate, up) stack their layers' rows, each padded to
 * four. @throws ModelFileError for a head width that is no multiple of four, DeviceError for what does not fit.
 */
export async function loadWeights(gpu: Gpu, files: ModelFiles, options: LoadOptions): Promise<GpuModel> {
  const arch = files.architecture;
  if (arch.headDim % 4 !== 0) {
    const message = `loading ${files.source.label}/config.json: head_dim is ${arch.headDim}; the kernels need a multiple of 4. Use another model.`;
    throw new ModelFileError('head-width', message);
  }
  const views: View[] = [];
  const total = weightBytes(files);
  let done = 0;

  async function fill(matrix: GpuMatrix, ref: TensorRef, atRow: number): Promise<void> {
    const wanted = Math.max(chunkBytes, matrix.columns * 16);
    for await (const chunk of files.readWeightChunks(ref, wanted)) {
      writeRows(gpu, matrix, atRow + chunk.offsetElements / matrix.columns, chunk.values);
      done += chunk.values.byteLength;
      options.onProgress?.(done, total);
      // Staging memory of queued writes is bounded by waiting for them now and then.
      if (done % (4 * chunkBytes) < chunk.values.byteLength)
        await gpu.wait('uploading weights', gpu.device.queue.onSubmittedWorkDone());
    }
    gpu.check();
  }
  async function matrix(name: string): Promise<GpuMatrix> {
    const ref = files.weight(name);
    const made = emptyMatrix(gpu, name, ref.shape[0]!, ref.shape[1]!, weightStorage(ref) === 'bf16');
    views.push(...made.parts.map((part) => part.view));
    await fill(made, ref, 0);
    return made;
  }
  async function vector(name: string): Promise<Float32Array> {
    const ref = files.weight(name);
    const values = new Float32Array(ref.shape[0]!);
    for await (const chunk of files.readWeightChunks(ref, chunkBytes)) {
      const bytes = new Uint8Array(chunk.values.buffer, chunk.values.byteOffset, chunk.values.byteLength);
      values.set(decodeToF32(bytes, chunk.storage === 'bf16' ? 'BF16' : 'F32'), chunk.offsetElements);
      done += chunk.values.byteLength;
    }
    return values;
  }
  function vectorView(label: string, ...vectors: Float32Array[]): View {
    const stride = padded(vectors[0]!.length);
    const data = new Float32Array(stride * vectors.length);
    for (const [i, values] of vectors.entries()) data.set(values, i * stride);
    const view = allocate(gpu, label, data.byteLength);
    upload(gpu, view, data);
    views.push(view);
    return view;
  }
  async function group(layer: number, name: GroupName): Promise<LinearGroup> {
    const refs = groupTargets[name].map((target) => ({
      target,
      ref: files.weight(`model.layers.${layer}.${linearPath(target)}.weight`),
      width: linearShape(arch, target).outFeatures,
    }));
    const inWidth = linearShape(arch, groupTargets[name][0]!).inFeatures;
    const outWidth = refs.reduce((sum, { width }) => sum + padded(width), 0);
    const bf16 = refs.every(({ ref }) => weightStorage(ref) === 'bf16');
    const rows = outWidth - padded(refs.at(-1)!.width) + refs.at(-1)!.width;
    const weight = emptyMatrix(gpu, `layers.${layer}.${name}`, rows, inWidth, bf16);
    views.push(...weight.parts.map((part) => part.view));
    const outputs: LinearOutput[] = [];
    let offset = 0;
    for (const { target, ref, width } of refs) {
      await fill(weight, ref, offset);
      outputs.push({ target, offset, width });
      offset += padded(width);
    }
    return { weight, inWidth, outWidth, outputs };
  }

  const embedding = await matrix(EMBEDDING);
  const layers: GpuLayer[] = [];
  for (let layer = 0; layer < arch.layers; layer++) {
    const stem = `model.layers.${layer}`;
    const gains = arch.qkNorm
      ? [await vector(`${stem}.self_attn.q_norm.weight`), await vector(`${stem}.self_attn.k_norm.weight`)]
      : [new Float32Array(arch.headDim).fill(1), new Float32Array(arch.headDim).fill(1)];
    layers.push({
      groups: {
        qkv: await group(layer, 'qkv'),
        o: await group(layer, 'o'),
        gateUp: await group(layer, 'gateUp'),
        down: await group(layer, 'down'),
      },
      inputNorm: vectorView(`${stem}.input_layernorm`, await vector(`${stem}.input_layernorm.weight`)),
      postNorm: vectorView(`${stem}.post_attention_layernorm`, await vector(`${stem}.post_attention_layernorm.weight`)),
      qkGain: vectorView(`${stem}.qk_norm`, ...gains),
    });
  }
  const finalNorm = vectorView('model.norm', await vector('model.norm.weight'));
  const head = arch.tied ? embedding : await matrix(OUTPUT_HEAD);
  const rope = ropeView(gpu, arch, options.positions);
  views.push(rope);
  await gpu.wait('uploading weights', gpu.device.queue.onSubmittedWorkDone());
  gpu.check();
  return {
    architecture: arch,
    embedding,
    head,
    layers,
    finalNorm,
    rope,
    positions: options.positions,
    bytes: views.reduce((sum, view) => sum + view.size, 0),
    destroy: () => {
      for (const view of views) release(gpu, view);
    },
  };
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
