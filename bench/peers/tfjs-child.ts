// Peer: matrix products of @tensorflow/tfjs-backend-webgpu on the adapter that Dawn gives this process.
// Not a test of tfjs. Takes shapes and answers milliseconds of each: the best of several rounds after 250 ms of warming up,
// f32 on both sides, the weight in rows (transposed by the product).
import { performance } from 'node:perf_hooks';
import { createGpuObject } from '../../src/gpu/dawn-node.ts';
import { answer, orderOf } from '../child.ts';
import type { TfjsAnswer, TfjsOrder } from './run.ts';

const { shapes, inner } = orderOf<TfjsOrder>();

// tfjs asks the global `navigator` for its device, and looks when it is imported.
const gpu = createGpuObject(['enable-dawn-features=allow_unsafe_apis']);
Object.defineProperty(globalThis, 'navigator', { value: { gpu, userAgent: 'node' }, configurable: true });
const tf = await import('@tensorflow/tfjs-core');
await import('@tensorflow/tfjs-backend-webgpu');
await tf.setBackend('webgpu');
await tf.ready();
const backend = tf.backend() as unknown as {
  device: GPUDevice;
  queue: GPUQueue;
  endComputePassEncoder(): void;
  submitQueue(): void;
};
// A refused command would leave a time that nothing was done in.
backend.device.addEventListener('uncapturederror', (event) => {
  process.stderr.write(`tfjs: ${event.error.message}\n`);
  process.exit(1);
});

async function run(a: import('@tensorflow/tfjs-core').Tensor2D, b: typeof a, times: number): Promise<number> {
  const began = performance.now();
  for (let i = 0; i < times; i++) tf.matMul(a, b, false, true).dispose();
  backend.endComputePassEncoder();
  backend.submitQueue();
  await backend.queue.onSubmittedWorkDone();
  return (performance.now() - began) / times;
}

const results: number[] = [];
for (const [rows, columns, k] of shapes) {
  const a = tf.randomUniform<import('@tensorflow/tfjs-core').Rank.R2>([rows, k], -1, 1, 'float32', 1);
  const b = tf.randomUniform<import('@tensorflow/tfjs-core').Rank.R2>([columns, k], -1, 1, 'float32', 2);
  const began = performance.now();
  do await run(a, b, 1);
  while (performance.now() - began < 250);
  const [left, right, product] = [await a.data(), await b.data(), tf.matMul(a, b, false, true)];
  let wanted = 0;
  for (let i = 0; i < k; i++) wanted += left[i]! * right[i]!;
  const found = (await product.data())[0]!;
  if (!(Math.abs(found - wanted) <= 1e-3 * k)) throw new Error(`tfjs: product is ${found}, wanted ${wanted}`);
  product.dispose();
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 5; round++) best = Math.min(best, await run(a, b, inner));
  results.push(best);
  a.dispose();
  b.dispose();
}
const { device: adapter } = backend.device.adapterInfo;
answer({ adapter, times: results } satisfies TfjsAnswer);
