// The bench's products are the passes' own: the fused layer's kernels where a model runs it.
import { expect, test } from 'vitest';
import { measureProduct } from '../../bench/products.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { startTiming } from '../../src/gpu/timing.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

test.each([true, false])('a layer of the matrix family, fused %s, runs the kernels of its pass', async (fused) => {
  const timing = startTiming(gpu());
  const r = createRecorder(gpu());
  const how = { fused, emulate: true };
  const effort = { warmMs: 1, budgetMs: 1 };
  const { ms, layerMs } = await measureProduct(gpu(), r, 'matrix', { rows: 3, columns: 72, k: 128 }, effort, how);
  const kernels = [...new Set((await timing.take()).map(({ kernel }) => kernel))].sort();
  timing.stop();
  expect(ms).toBeGreaterThan(0);
  expect(layerMs).toBeGreaterThan(0);
  if (fused) expect(kernels).toEqual(['matrix-plain', 'matrix-rows', 'matrix-weight-scan']);
  else expect(kernels).not.toContain('matrix-rows');
});
