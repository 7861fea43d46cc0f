// Records dispatches and copies, and submits them in order as one command buffer.
// Not a graph: order is the order of calls. Invariant: nothing is dropped; scalars travel in one uniform ring that is
// written before the commands that read it.
import { KernelError } from '../lib/errors.ts';
import { allocate, type View } from './buffers.ts';
import type { Gpu } from './device.ts';
import type { Kernel } from './kernel.ts';
import { type Compiled, compile } from './pipeline.ts';
import { type PassTimer, passTimer } from './timing.ts';
import { type KernelVariant, kernelVariant } from './variant.ts';

const slots = 4096;

export interface Recorder {
  /** The form of the kernels that suits the device. */
  readonly variant: KernelVariant;
  /** Workgroup memory of the device, bytes. */
  readonly workgroupBytes: number;
  /** Adds one dispatch. `views` follow the kernel's bindings; `params` must name every scalar. */
  dispatch(
    kernel: Kernel,
    views: readonly View[],
    params: Readonly<Record<string, number>>,
    grid: readonly [number, number, number],
    constants?: Readonly<Record<string, number>>,
  ): void;
  copy(from: View, fromOffset: number, to: View, toOffset: number, bytes: number): void;
  clear(view: View): void;
  /** Sends everything recorded so far to the queue. */
  submit(): void;
}

/**
 * Writes a kernel's scalars at word `base`, in struct order, where `room` words are its own.
 * @throws KernelError `missing-param`, `too-many-scalars`.
 */
export function writeScalars(
  kernel: Kernel,
  params: Readonly<Record<string, number>>,
  words: Uint32Array,
  floats: Float32Array,
  base: number,
  room: number,
): void {
  if (kernel.params.length > room) {
    const message = `dispatching ${kernel.name}: ${kernel.params.length} scalars, room for ${room}; put some into a buffer.`;
    throw new KernelError('too-many-scalars', message);
  }
  for (let i = 0; i < kernel.params.length; i++) {
    const [name, type] = kernel.params[i]!;
    const value = params[name];
    if (value === undefined) {
      throw new KernelError(
        'missing-param',
        `dispatching ${kernel.name}: no value for scalar ${name}; give every scalar.`,
      );
    }
    if (type === 'f32') floats[base + i] = value;
    else words[base + i] = value;
  }
}

/** The bind group of a kernel on its scalars' buffer and its views. @throws KernelError `bindings` on a wrong number. */
export function bindGroupOf(gpu: Gpu, compiled: Compiled, scalars: View, views: readonly View[]): GPUBindGroup {
  const { kernel } = compiled;
  if (views.length !== kernel.bindings.length) {
    throw new KernelError(
      'bindings',
      `dispatching ${kernel.name}: ${views.length} views for ${kernel.bindings.length} bindings.`,
    );
  }
  return gpu.device.createBindGroup({
    label: kernel.name,
    layout: compiled.layout,
    entries: [
      { binding: 0, resource: { buffer: scalars.buffer, size: compiled.paramBytes } },
      ...views.map((view, i) => ({
        binding: i + 1,
        resource: { buffer: view.buffer, offset: view.offset, size: view.size },
      })),
    ],
  });
}

/** A recorder for one device; it may be used again after each submit. */
export function createRecorder(gpu: Gpu): Recorder {
  const { device } = gpu;
  const stride = Math.max(64, gpu.identity.limits.minUniformBufferOffsetAlignment);
  const ring = allocate(gpu, 'kernel scalars', slots * stride, GPUBufferUsage.UNIFORM);
  const words = new Uint32Array((slots * stride) / 4);
  const floats = new Float32Array(words.buffer);
  let used = 0;
  let encoder: GPUCommandEncoder | null = null;
  let pass: GPUComputePassEncoder | null = null;
  let timer: PassTimer | null = null;

  function bindGroup(compiled: Compiled, views: readonly View[]): GPUBindGroup {
    // The group holds this recorder's own ring, so another recorder's group will not do.
    let key = `${ring.id}:`;
    for (const view of views) key += `${view.id},`;
    let group = compiled.groups.get(key);
    if (!group) compiled.groups.set(key, (group = bindGroupOf(gpu, compiled, ring, views)));
    return group;
  }

  function endPass(): GPUCommandEncoder {
    pass?.end();
    pass = null;
    return begun();
  }

  function begun(): GPUCommandEncoder {
    if (!encoder) {
      encoder = device.createCommandEncoder();
      timer = passTimer(gpu);
    }
    return encoder;
  }

  /** The pass of the next dispatch: one for all, or one each while the device is measured. */
  function passFor(kernel: Kernel, grid: readonly [number, number, number]): GPUComputePassEncoder {
    const open = begun();
    if (!timer) return (pass ??= open.beginComputePass());
    pass?.end();
    const timestampWrites = timer.next(kernel.name, grid);
    return (pass = open.beginComputePass(timestampWrites ? { timestampWrites } : {}));
  }

  function submit(): void {
    if (!encoder) return;
    timer?.resolve(endPass());
    endPass();
    if (used > 0) device.queue.writeBuffer(ring.buffer, 0, words, 0, (used * stride) / 4);
    device.queue.submit([encoder.finish()]);
    timer?.submitted();
    timer = null;
    encoder = null;
    used = 0;
    gpu.check();
  }

  return {
    variant: kernelVariant(gpu.identity),
    workgroupBytes: gpu.identity.limits.maxComputeWorkgroupStorageSize,
    dispatch(kernel, views, params, grid, constants) {
      if (used === slots) submit();
      const compiled = compile(gpu, kernel, constants);
      const offset = used * stride;
      writeScalars(kernel, params, words, floats, offset / 4, stride / 4);
      used += 1;
      const into = passFor(kernel, grid);
      into.setPipeline(compiled.pipeline);
      into.setBindGroup(0, bindGroup(compiled, views), [offset]);
      into.dispatchWorkgroups(grid[0], grid[1], grid[2]);
    },
    copy(from, fromOffset, to, toOffset, bytes) {
      endPass().copyBufferToBuffer(from.buffer, from.offset + fromOffset, to.buffer, to.offset + toOffset, bytes);
    },
    clear(view) {
      endPass().clearBuffer(view.buffer, view.offset, view.size);
    },
    submit,
  };
}
