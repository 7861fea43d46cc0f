// Runs a kernel once on given buffers and reads outputs back; and the qualification tests of one kernel.
// Not the product's qualification (src/kernels/qualify.ts does the comparing).
// Invariant: every buffer is freshly allocated and released.
import { describe, expect, test } from 'vitest';
import { allocate, readBytes, release, upload } from '../../src/gpu/buffers.ts';
import type { Gpu } from '../../src/gpu/device.ts';
import type { Kernel, KernelArray, QualifiedKernel } from '../../src/gpu/kernel.ts';
import { checkShader } from '../../src/gpu/pipeline.ts';
import { createRecorder, type Recorder } from '../../src/gpu/recorder.ts';
import { runCase } from '../../src/kernels/qualify.ts';

const recorders = new WeakMap<GPUDevice, Recorder>();

/** One dispatch; `buffers` by binding name, a number is that many zeroed elements. Returns every buffer's u32 words. */
export async function runKernel(
  gpu: Gpu,
  kernel: Kernel,
  params: Readonly<Record<string, number>>,
  grid: readonly [number, number, number],
  buffers: Readonly<Record<string, KernelArray | number>>,
  constants?: Readonly<Record<string, number>>,
): Promise<Record<string, Uint32Array<ArrayBuffer>>> {
  let recorder = recorders.get(gpu.device);
  if (!recorder) recorders.set(gpu.device, (recorder = createRecorder(gpu)));
  const views = kernel.bindings.map(({ name }) => {
    const data = buffers[name] ?? 4;
    const view = allocate(gpu, `${kernel.name}.${name}`, typeof data === 'number' ? data * 4 : data.byteLength);
    if (typeof data !== 'number') upload(gpu, view, data);
    return view;
  });
  try {
    recorder.dispatch(kernel, views, params, grid, constants);
    recorder.submit();
    const out: Record<string, Uint32Array<ArrayBuffer>> = {};
    for (const [i, { name, access }] of kernel.bindings.entries()) {
      const data = buffers[name] ?? 4;
      const bytes = typeof data === 'number' ? data * 4 : data.byteLength;
      if (access === 'read_write') out[name] = new Uint32Array(await readBytes(gpu, views[i]!, bytes));
    }
    return out;
  } finally {
    for (const view of views) release(gpu, view);
  }
}

/** The f32 values of words. */
export function floats(words: Uint32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  return new Float32Array(words.buffer, words.byteOffset, words.length);
}

/** A test that the shader compiles and one a case: within its bound, same bits twice, nothing past the end. */
export function describeQualification(gpu: () => Gpu, kernel: QualifiedKernel): void {
  describe(`kernel ${kernel.name}`, () => {
    test('compiles without an error', async () => {
      await checkShader(gpu(), kernel);
    });
    test.each(kernel.cases().map((run) => [run.name, run] as const))('is within its bound: %s', async (_name, run) => {
      const result = await runCase(gpu(), kernel, run, 3);
      expect(result).toMatchObject({ stable: true, guarded: true });
      expect(result.worst, result.at).toBeLessThanOrEqual(1);
      expect(result.passed).toBe(true);
    });
  });
}
