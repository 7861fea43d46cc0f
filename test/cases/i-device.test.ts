// Cases I1 and I6 of public bug reports: binding limits and out-of-memory are errors with numbers, never clamped buffers or zeros.
import { afterEach, describe, expect, test } from 'vitest';
import { allocate, memoryInUse, readF32, release, upload } from '../../src/gpu/buffers.ts';
import { type Gpu, openGpu } from '../../src/gpu/device.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { addInto, addIntoGrid } from '../../src/kernels/add-into.ts';

let gpu: Gpu | null = null;
afterEach(() => {
  gpu?.destroy();
  gpu = null;
});

describe('I1: buffers beyond the limits of a device', () => {
  test('a device is opened with the limits that the adapter has, not the defaults of the standard', async () => {
    gpu = await openGpu();
    const adapterLimit = gpu.identity.limits.maxBufferSize;
    expect(gpu.device.limits.maxBufferSize).toBe(adapterLimit);
    expect(gpu.device.limits.maxStorageBufferBindingSize).toBe(gpu.identity.limits.maxStorageBufferBindingSize);
  });

  test('an allocation past a limit names the buffer, the bytes needed and the bytes allowed', async () => {
    gpu = await openGpu({ limits: { maxStorageBufferBindingSize: 134_217_728 } });
    const device = gpu;
    expect(() => allocate(device, 'embed.weight', 311_164_928)).toThrowErrorMatchingInlineSnapshot(
      `[DeviceError: allocating embed.weight: needs 311164928 bytes, the adapter allows 134217728 a binding (maxStorageBufferBindingSize 134217728, maxBufferSize ${device.identity.limits.maxBufferSize}). Use another adapter, a smaller batch or a smaller model.]`,
    );
    expect(memoryInUse(device)).toBe(0);
  });
});

describe('I6: GPU errors that nobody awaited', () => {
  test('an uncaptured error makes every later submission and wait fail, with the message of the first', async () => {
    gpu = await openGpu();
    const device = gpu;
    const a = allocate(device, 'a', 64);
    const b = allocate(device, 'b', 64);
    const recorder = createRecorder(device);
    recorder.dispatch(addInto, [b, a], { count: 16 }, addIntoGrid(16));
    recorder.submit();
    // A copy of a buffer onto itself is a validation error that no scope catches.
    recorder.copy(a, 0, a, 16, 16);
    expect(() => recorder.submit()).toThrow(/running GPU commands: .*same buffer/s);
    await expect(readF32(device, a)).rejects.toMatchObject({ name: 'DeviceError', code: 'gpu-error' });
    recorder.dispatch(addInto, [b, a], { count: 16 }, addIntoGrid(16));
    expect(() => recorder.submit()).toThrow(/same buffer/);
    expect(() => device.check()).toThrow(/Nothing of this step was kept/);
  });

  test('a lost device rejects what waits for it at once', async () => {
    gpu = await openGpu();
    const device = gpu;
    const view = allocate(device, 'a', 64);
    upload(device, view, new Float32Array(16));
    device.device.destroy();
    await expect(readF32(device, view)).rejects.toMatchObject({ name: 'DeviceError' });
  });

  test('memory that is released is counted back', async () => {
    gpu = await openGpu();
    const before = memoryInUse(gpu);
    const view = allocate(gpu, 'a', 1000);
    expect(memoryInUse(gpu)).toBe(before + 1008);
    release(gpu, view);
    expect(memoryInUse(gpu)).toBe(before);
  });
});
