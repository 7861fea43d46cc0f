// Compiles kernels: one pipeline for a shader and its constants, with explicit bind-group layouts.
// Not a scheduler. Invariant: a pipeline depends on the shader's text and constants alone, never on batch or timing.
import { loadWgsl } from '#wgsl';
import { KernelError, ShaderlError } from '../lib/errors.ts';
import type { Gpu } from './device.ts';
import type { Kernel } from './kernel.ts';

export interface Compiled {
  readonly kernel: Kernel;
  readonly constants: Readonly<Record<string, number>>;
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  readonly paramBytes: number;
  readonly groups: Map<string, GPUBindGroup>;
}

const caches = new WeakMap<GPUDevice, Map<string, Compiled>>();

/** Found by the identity of kernel and constants, without making a key: most dispatches give the same objects again. */
const quick = new WeakMap<GPUDevice, WeakMap<Kernel, WeakMap<object, Compiled>>>();
const noConstants: Readonly<Record<string, number>> = {};

function layoutOf(gpu: Gpu, kernel: Kernel): GPUBindGroupLayout {
  const visibility = GPUShaderStage.COMPUTE;
  return gpu.device.createBindGroupLayout({
    label: kernel.name,
    entries: [
      { binding: 0, visibility, buffer: { type: 'uniform', hasDynamicOffset: true } },
      ...kernel.bindings.map((binding, i) => ({
        binding: i + 1,
        visibility,
        buffer: { type: binding.access === 'read' ? ('read-only-storage' as const) : ('storage' as const) },
      })),
    ],
  });
}

/** The pipeline of a kernel with some constants, compiled once a device. Constants are not changed after they are given. */
export function compile(gpu: Gpu, kernel: Kernel, constants: Readonly<Record<string, number>> = noConstants): Compiled {
  let byKernel = quick.get(gpu.device);
  if (!byKernel) quick.set(gpu.device, (byKernel = new WeakMap()));
  let byConstants = byKernel.get(kernel);
  if (!byConstants) byKernel.set(kernel, (byConstants = new WeakMap()));
  let compiled = byConstants.get(constants);
  if (!compiled) byConstants.set(constants, (compiled = compileByKey(gpu, kernel, constants)));
  return compiled;
}

function cacheOf(gpu: Gpu): Map<string, Compiled> {
  let cache = caches.get(gpu.device);
  if (!cache) caches.set(gpu.device, (cache = new Map()));
  return cache;
}

/** A pipeline's key, and all its constants. */
function keyOf(kernel: Kernel, constants: Readonly<Record<string, number>>) {
  const all = { ...kernel.constants, ...constants };
  const list = Object.entries(all)
    .map(([k, v]) => `${k}=${v}`)
    .sort();
  return { key: `${kernel.name}|${list.join(',')}`, all };
}

const textOf = ({ name, source }: Kernel): string => source ?? loadWgsl(`${name}.wgsl`);

const moduleOf = (gpu: Gpu, kernel: Kernel): GPUShaderModule =>
  gpu.device.createShaderModule({ label: `shaders/${kernel.name}.wgsl`, code: textOf(kernel) });

function entryOf(
  kernel: Kernel,
  constants: Readonly<Record<string, number>>,
  layout: GPUBindGroupLayout,
  pipeline: GPUComputePipeline,
): Compiled {
  const paramBytes = Math.max(16, Math.ceil(kernel.params.length / 4) * 16);
  return { kernel, constants, pipeline, layout, paramBytes, groups: new Map() };
}

function compileByKey(gpu: Gpu, kernel: Kernel, constants: Readonly<Record<string, number>>): Compiled {
  const cache = cacheOf(gpu);
  const { key, all } = keyOf(kernel, constants);
  const known = cache.get(key);
  if (known) return known;
  const layout = layoutOf(gpu, kernel);
  const pipeline = gpu.device.createComputePipeline({
    label: key,
    layout: gpu.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module: moduleOf(gpu, kernel), entryPoint: 'main', constants: all },
  });
  const compiled = entryOf(kernel, constants, layout, pipeline);
  cache.set(key, compiled);
  return compiled;
}

/** A kernel with its constants: what a pipeline is made of. */
export interface PipelineUse {
  kernel: Kernel;
  constants: Readonly<Record<string, number>>;
}

/** The pipelines that a device has so far. */
export function pipelinesOf(gpu: Gpu): PipelineUse[] {
  return [...cacheOf(gpu).values()].map(({ kernel, constants }) => ({ kernel, constants }));
}

/** Compilations under way at a time: more than any driver uses, few enough for their memory. */
const compiling = 16;

/**
 * Compiles pipelines before they are needed, side by side on the driver's threads, while the caller does something else.
 * @throws KernelError `compile` naming the pipeline that the driver refused.
 */
export async function compileAhead(
  gpu: Gpu,
  uses: readonly PipelineUse[],
  onProgress: (done: number, total: number) => void = () => {},
): Promise<void> {
  const cache = cacheOf(gpu);
  const wanted = new Map(uses.map((use) => [keyOf(use.kernel, use.constants).key, use]));
  const jobs = [...wanted].filter(([key]) => !cache.has(key));
  const modules = new Map<string, GPUShaderModule>();
  let next = 0;
  let done = 0;
  async function lane(): Promise<void> {
    while (next < jobs.length) {
      const [key, { kernel, constants }] = jobs[next++]!;
      const layout = layoutOf(gpu, kernel);
      const module = modules.get(kernel.name) ?? moduleOf(gpu, kernel);
      modules.set(kernel.name, module);
      const made = gpu.device.createComputePipelineAsync({
        label: key,
        layout: gpu.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: 'main', constants: keyOf(kernel, constants).all },
      });
      const pipeline = await gpu.wait(`compiling ${kernel.name}`, made).catch((cause: unknown) => {
        if (cause instanceof ShaderlError) throw cause;
        const text = cause instanceof Error ? cause.message : String(cause);
        throw new KernelError('compile', `compiling ${key}: ${text}; wanted a pipeline. Fix the shader.`, { cause });
      });
      // Whoever could not wait has compiled it meanwhile, and holds that one.
      if (!cache.has(key)) cache.set(key, entryOf(kernel, constants, layout, pipeline));
      onProgress(++done, jobs.length);
    }
  }
  await Promise.all(Array.from({ length: Math.min(compiling, jobs.length) }, lane));
}

/** Compiles a shader for its messages alone: throws KernelError with file:line:column of every error. */
export async function checkShader(gpu: Gpu, kernel: Kernel): Promise<void> {
  gpu.device.pushErrorScope('validation');
  const module = gpu.device.createShaderModule({ label: kernel.name, code: textOf(kernel) });
  const info = await gpu.wait(`compiling ${kernel.name}`, module.getCompilationInfo());
  await gpu.wait(`compiling ${kernel.name}`, gpu.device.popErrorScope());
  const errors = info.messages.filter((m) => m.type === 'error');
  if (errors.length > 0) {
    const list = errors.map((m) => `shaders/${kernel.name}.wgsl:${m.lineNum}:${m.linePos} ${m.message}`).join('; ');
    throw new KernelError('compile', `compiling ${kernel.name}: ${list}. Fix the shader; no pipeline was cached.`);
  }
}
