// Looks a machine over without running anything: its adapters, what they offer, and what a given model would need.
// Not a benchmark and not a qualification. Invariant: sizes come from the very functions that allocate, run on a device
// that only counts, so they cannot drift from what a run takes.

import { createGpuObject } from '#dawn';
import { memoryInUse } from './gpu/buffers.ts';
import { type DeviceIdentity, findAdapter, type Gpu, identify, type KernelFamily } from './gpu/device.ts';
import { padded } from './gpu/kernel.ts';
import { kernels } from './kernels/index.ts';
import { type MatrixConfig, matrixConfigs, supportsMatrixFamily } from './kernels/matrix-config.ts';
import { DeviceError } from './lib/errors.ts';
import { adapterLayout } from './model/adapter-gpu.ts';
import type { Architecture } from './model/config.ts';
import { createHead } from './model/head.ts';
import { checkLoraConfig, type LoraConfig, parameterCount, resolveTargets } from './model/lora.ts';
import type { ModelFiles } from './model/model-files.ts';
import { EMBEDDING, linearShape, OUTPUT_HEAD } from './model/tensor-names.ts';
import { weightStorage } from './model/weight-chunks.ts';
import { createWorkspace } from './model/workspace.ts';

interface FamilyState {
  /** Whether a run with this family can be made here. */
  available: boolean;
  /** Why, in one sentence. */
  reason: string;
}

export interface AdapterReport {
  /** All that Dawn lists, by its own names; the one that is used is described by `identity`. */
  adapters: string[];
  identity: DeviceIdentity;
  /** The driver's own description, with its version. */
  driver: string;
  matrixConfigs: MatrixConfig[];
  families: Record<KernelFamily, FamilyState>;
}

// Dawn answers an adapter name that does not exist with the list of those that do.
const NO_SUCH_ADAPTER = 'adapter=list-the-adapters';

/** Names of all adapters that Dawn sees, as `vulkan: llvmpipe (...)`; empty where it sees none. */
async function listAdapters(): Promise<string[]> {
  try {
    await createGpuObject([NO_SUCH_ADAPTER]).requestAdapter();
  } catch (error) {
    const lines = error instanceof Error ? error.message.matchAll(/backend: '([^']*)', name: '([^']*)'/g) : [];
    return [...lines].map(([, backend, name]) => `${backend}: ${name}`);
  }
  return [];
}

/** What the adapter that a run would use offers; null where there is none. */
export async function inspectAdapter(): Promise<AdapterReport | null> {
  const adapters = await listAdapters();
  const found = await findAdapter();
  if (!found) return null;
  const info = found.adapter.info;
  const configs = matrixConfigs(found.adapter);
  const identity = identify(found.adapter, found.flags);
  return {
    adapters,
    identity,
    driver: info.description,
    matrixConfigs: configs,
    families: {
      portable: portableState(identity),
      matrix: matrixState(identity, configs, supportsMatrixFamily(found.adapter)),
    },
  };
}

function portableState(identity: DeviceIdentity): FamilyState {
  const bindings = Math.max(...kernels.map((kernel) => kernel.bindings.length));
  const allowed = identity.limits.maxStorageBuffersPerShaderStage;
  if (bindings > allowed) {
    return { available: false, reason: `a kernel binds ${bindings} buffers, the adapter allows ${allowed} a stage` };
  }
  return { available: true, reason: 'needs WebGPU core only' };
}

/** The family's arithmetic is f16 operands and f32 accumulation; an f16 accumulator would be another policy. */
function matrixState(identity: DeviceIdentity, configs: readonly MatrixConfig[], supported: boolean): FamilyState {
  const feature = 'chromium-experimental-subgroup-matrix';
  if (!identity.features.includes(feature)) {
    return { available: false, reason: `the adapter has no feature ${feature}` };
  }
  const usable = configs.filter((c) => c.componentType === 'f16' && c.resultComponentType === 'f32');
  if (usable.length === 0) {
    return { available: false, reason: 'the adapter has no subgroup matrix of f16 with f32 results' };
  }
  const shapes = usable.map(({ M, N, K }) => `${M}x${N}x${K}`).join(', ');
  if (supported) return { available: true, reason: `f16 to f32 in ${shapes}` };
  const wanted = '16x16x16, subgroups of 32 and 33,280 bytes of workgroup memory';
  return { available: false, reason: `the adapter has f16 to f32 in ${shapes}; the kernels need ${wanted}` };
}

/** Refuses a family that cannot be run here. Throws DeviceError `family-unavailable`. */
export function requireFamily(report: AdapterReport, family: KernelFamily): void {
  const state = report.families[family];
  if (state.available) return;
  throw new DeviceError(
    'family-unavailable',
    `choosing the kernel family ${family} on ${report.driver || report.identity.device}: ${state.reason}; ` +
      'wanted a family that runs here. Use --family portable.',
  );
}

export interface MemoryShape {
  /** Sequences at a time, each with a KV cache. */
  slots: number;
  /** Positions of each. */
  context: number;
  lora: LoraConfig;
}

/** Bytes on the device. Sampling and training hold a workspace each. */
export interface MemoryNeed {
  weights: number;
  /** Keys and values of the sampler's slots, in f32. */
  kvCache: number;
  /** The sampler's other buffers. */
  sampling: number;
  /** The trainer's activations, cache and gradients of them, for one whole group as a micro-batch. */
  training: number;
  /** Adapter parameters, their gradient and AdamW's two moments. */
  adapter: number;
  adapterParameters: number;
  total: number;
}

/** What a model needs for rollouts and training at a shape. @throws DeviceError `limit-too-small`. */
export function memoryNeed(identity: DeviceIdentity, files: ModelFiles, shape: MemoryShape): MemoryNeed {
  const arch = files.architecture;
  checkLoraConfig(shape.lora, 'estimating memory');
  const { slots, context } = shape;
  const layout = adapterLayout(arch, shape.lora);
  const sampler = countingGpu(identity);
  createWorkspace(sampler, arch, layout, { rows: Math.max(slots, 512), slots, cacheLength: context, training: false });
  createHead(sampler, arch, slots);
  const trainer = countingGpu(identity);
  const rows = slots * context;
  createWorkspace(trainer, arch, layout, { rows, slots, cacheLength: context, training: true });
  createHead(trainer, arch, rows);
  const kvCache = arch.layers * 2 * slots * padded(context) * arch.kvHeads * arch.headDim * 4;
  const need = {
    weights: weightNeed(files, context),
    kvCache,
    sampling: memoryInUse(sampler) - kvCache,
    training: memoryInUse(trainer),
    adapter: layout.length * 4 * 4,
    adapterParameters: parameterCount(arch, shape.lora),
  };
  const total = need.weights + need.kvCache + need.sampling + need.training + need.adapter;
  return { ...need, total };
}

/** All linear layers at a rank, with alpha twice the rank. */
export function defaultLora(rank: number): LoraConfig {
  return { rank, alpha: 2 * rank, useRslora: false, targets: resolveTargets('all-linear') };
}

/** Bytes that weights.ts puts on the device: rows padded to four elements, bf16 or f32 as the files have them. */
function weightNeed(files: ModelFiles, positions: number): number {
  const arch = files.architecture;
  const aligned = (bytes: number) => Math.ceil(bytes / 16) * 16;
  const isBf16 = (name: string) => weightStorage(files.weight(name)) === 'bf16';
  const matrix = (rows: number, columns: number, bf16: boolean) => aligned(rows * padded(columns) * (bf16 ? 2 : 4));
  const vector = (count: number, length: number) => aligned(count * padded(length) * 4);
  let bytes = matrix(arch.vocabSize, arch.hiddenSize, isBf16(EMBEDDING));
  if (!arch.tied) bytes += matrix(arch.vocabSize, arch.hiddenSize, isBf16(OUTPUT_HEAD));
  for (let layer = 0; layer < arch.layers; layer++) bytes += layerNeed(arch, layer, isBf16, matrix);
  bytes += arch.layers * (2 * vector(1, arch.hiddenSize) + vector(2, arch.headDim)) + vector(1, arch.hiddenSize);
  return bytes + aligned(positions * arch.headDim * 4);
}

function layerNeed(
  arch: Architecture,
  layer: number,
  isBf16: (name: string) => boolean,
  matrix: (rows: number, columns: number, bf16: boolean) => number,
): number {
  const stem = `model.layers.${layer}`;
  const groups = [
    { path: 'self_attn', names: ['q_proj', 'k_proj', 'v_proj'] },
    { path: 'self_attn', names: ['o_proj'] },
    { path: 'mlp', names: ['gate_proj', 'up_proj'] },
    { path: 'mlp', names: ['down_proj'] },
  ] as const;
  return groups.reduce((sum, { path, names }) => {
    const shapes = names.map((name) => linearShape(arch, name));
    const last = shapes.at(-1)!;
    const rows = shapes.reduce((n, { outFeatures }) => n + padded(outFeatures), 0);
    const bf16 = names.every((name) => isBf16(`${stem}.${path}.${name}.weight`));
    return sum + matrix(rows - padded(last.outFeatures) + last.outFeatures, last.inFeatures, bf16);
  }, 0);
}

/** A device that allocates nothing: it has the limits of a real one, and `memoryInUse` counts what was asked for. */
function countingGpu(identity: DeviceIdentity): Gpu {
  const device = {
    createBuffer: ({ label, size }: GPUBufferDescriptor) => ({ label, size, destroy: () => {} }),
  } as unknown as GPUDevice;
  return {
    device,
    identity,
    timeoutMs: 0,
    check: () => {},
    wait: (_doing, work) => work,
    destroy: () => {},
  };
}
