// The matrix family on a device that has it. Elsewhere these tests are skipped, and matrix-compile and matrix-pack say
// what can be said without one.
import { beforeEach, describe, expect, test } from 'vitest';
import { matrixCanonicalChecks } from '../../src/kernels/matrix-canonical.ts';
import { matrixFeature, matrixKernels } from '../../src/kernels/matrix-index.ts';
import { runCase } from '../../src/kernels/qualify.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
beforeEach((context) => {
  if (!gpu().device.features.has(matrixFeature)) context.skip();
});

const cases = matrixKernels.flatMap((kernel) =>
  kernel.cases().map((run) => [kernel.name, run.name, kernel, run] as const),
);

describe('matrix family', () => {
  test.each(cases)('%s is within its bound: %s', async (_kernel, _case, kernel, run) => {
    const result = await runCase(gpu(), kernel, run, 3);
    expect(result).toMatchObject({ stable: true, guarded: true, passed: true });
  });

  test('gives an output the same bits by every kernel and tile, at every row', async () => {
    expect((await matrixCanonicalChecks(gpu())).filter(({ passed }) => !passed)).toEqual([]);
  });
});
