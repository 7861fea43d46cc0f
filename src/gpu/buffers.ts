// GPU memory: labelled allocation with a budget, views into buffers, upload and read-back.
// Not a pool: what is allocated lives until destroyed. Invariant: an allocation past the device's limits is refused
// with both numbers before the device is asked.
import { DeviceError } from '../lib/errors.ts';
import type { Gpu } from './device.ts';

/** A byte range of a buffer, as bound to a kernel. `id` makes bind groups cacheable. */
export interface View {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly size: number;
  readonly id: number;
}

let nextId = 1;
const bytesInUse = new WeakMap<GPUDevice, number>();

/** Bytes that this process has allocated on the device and not destroyed. */
export function memoryInUse(gpu: Gpu): number {
  return bytesInUse.get(gpu.device) ?? 0;
}

/**
 * Allocates a zero-filled storage buffer of at least `bytes` bytes (multiples of 16; a binding of size 0 is not allowed).
 * @throws DeviceError `limit-too-small` with needed and available bytes.
 */
export function allocate(gpu: Gpu, label: string, bytes: number, extraUsage = 0): View {
  const size = Math.max(16, Math.ceil(bytes / 16) * 16);
  const { maxBufferSize, maxStorageBufferBindingSize } = gpu.identity.limits;
  const limit = Math.min(maxBufferSize, maxStorageBufferBindingSize);
  if (size > limit) {
    throw new DeviceError(
      'limit-too-small',
      `allocating ${label}: needs ${size} bytes, the adapter allows ${limit} a binding (maxStorageBufferBindingSize ` +
        `${maxStorageBufferBindingSize}, maxBufferSize ${maxBufferSize}). Use another adapter, a smaller batch or a smaller model.`,
    );
  }
  gpu.check();
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST | extraUsage;
  const buffer = gpu.device.createBuffer({ label, size, usage });
  bytesInUse.set(gpu.device, memoryInUse(gpu) + size);
  return { buffer, offset: 0, size, id: nextId++ };
}

/** Destroys the buffer under a view made by `allocate`. */
export function release(gpu: Gpu, view: View): void {
  bytesInUse.set(gpu.device, memoryInUse(gpu) - view.buffer.size);
  view.buffer.destroy();
}

/** Part of a view; `offset` must be a multiple of the device's storage offset alignment. */
export function subview(gpu: Gpu, view: View, offset: number, size: number): View {
  const alignment = gpu.identity.limits.minStorageBufferOffsetAlignment;
  if (offset % alignment !== 0 || offset + size > view.size) {
    throw new DeviceError(
      'bad-view',
      `binding part of ${view.buffer.label}: offset ${offset} and size ${size} in ${view.size} bytes; the offset must be a multiple of ${alignment}.`,
    );
  }
  return { buffer: view.buffer, offset: view.offset + offset, size, id: nextId++ };
}

/** Writes host data to a view, at a byte offset that is a multiple of four. */
export function upload(gpu: Gpu, view: View, data: ArrayBufferView<ArrayBuffer>, offset = 0): void {
  if (offset + data.byteLength > view.size) {
    throw new DeviceError(
      'bad-upload',
      `uploading to ${view.buffer.label}: ${data.byteLength} bytes at ${offset} do not fit ${view.size}; the shapes disagree.`,
    );
  }
  gpu.device.queue.writeBuffer(view.buffer, view.offset + offset, data);
}

/** Reads bytes back, after all work submitted so far. */
export async function readBytes(gpu: Gpu, view: View, bytes = view.size, offset = 0): Promise<ArrayBuffer> {
  const size = Math.ceil(bytes / 4) * 4;
  const staging = gpu.device.createBuffer({
    label: `read ${view.buffer.label}`,
    size: Math.max(size, 4),
    usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ,
  });
  try {
    const encoder = gpu.device.createCommandEncoder();
    encoder.copyBufferToBuffer(view.buffer, view.offset + offset, staging, 0, size);
    gpu.device.queue.submit([encoder.finish()]);
    await gpu.wait(`reading ${view.buffer.label} back`, staging.mapAsync(GPUMapMode.READ, 0, size));
    return staging.getMappedRange(0, size).slice(0, bytes);
  } finally {
    staging.destroy();
  }
}

/** Reads `count` f32 values from an element offset. */
export async function readF32(
  gpu: Gpu,
  view: View,
  count = view.size / 4,
  offset = 0,
): Promise<Float32Array<ArrayBuffer>> {
  return new Float32Array(await readBytes(gpu, view, count * 4, offset * 4));
}

/** Reads `count` u32 values from an element offset. */
export async function readU32(
  gpu: Gpu,
  view: View,
  count = view.size / 4,
  offset = 0,
): Promise<Uint32Array<ArrayBuffer>> {
  return new Uint32Array(await readBytes(gpu, view, count * 4, offset * 4));
}
