// Compiles kernels: one pipeline for a shader and its constants, with explicit bind-group layouts.
// Not a scheduler. Invariant: a pipeline depends on the shader's text and constants alone, never on batch or timing.
import { loadWgsl } from '#wgsl';
import { KernelError } from '../lib/errors.ts';
import type { Gpu } from './device.ts';
import type { Kernel } from './kernel.ts';

export interface Compiled {
  readonly kernel: Kernel;
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

function compileByKey(gpu: Gpu, kernel: Kernel, constants: Readonly<Record<string, number>>): Compiled {
  let cache = caches.get(gpu.device);
  if (!cache) caches.set(gpu.device, (cache = new Map()));
  const all = { ...kernel.constants, ...constants };
  const key = `${kernel.name}|${Object.entries(all)
    .map(([k, v]) => `${k}=${v}`)
    .sort()
    .join(',')}`;
  const known = cache.get(key);
  if (known) return known;
  const layout = layoutOf(gpu, kernel);
  const module = gpu.device.createShaderModule({
    label: `shaders/${kernel.name}.wgsl`,
    code: loadWgsl(`${kernel.name}.wgsl`),
  });
  const pipeline = gpu.device.createComputePipeline({
    label: key,
    layout: gpu.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: 'main', constants: all },
  });
  const compiled = {
    kernel,
    pipeline,
    layout,
    paramBytes: Math.max(16, Math.ceil(kernel.params.length / 4) * 16),
    groups: new Map(),
  };
  cache.set(key, compiled);
  return compiled;
}

/** Compiles a shader for its messages alone: throws KernelError with file:line:column of every error. */
export async function checkShader(gpu: Gpu, kernel: Kernel): Promise<void> {
  gpu.device.pushErrorScope('validation');
  const module = gpu.device.createShaderModule({ label: kernel.name, code: loadWgsl(`${kernel.name}.wgsl`) });
  const info = await gpu.wait(`compiling ${kernel.name}`, module.getCompilationInfo());
  await gpu.wait(`compiling ${kernel.name}`, gpu.device.popErrorScope());
  const errors = info.messages.filter((m) => m.type === 'error');
  if (errors.length > 0) {
    const list = errors.map((m) => `shaders/${kernel.name}.wgsl:${m.lineNum}:${m.linePos} ${m.message}`).join('; ');
    throw new KernelError('compile', `compiling ${kernel.name}: ${list}. Fix the shader; no pipeline was cached.`);
  }
}
