import { describe, expect, test } from 'vitest';
import { checkShader } from '../../src/gpu/pipeline.ts';
import { supports } from '../../src/gpu/variant.ts';
import { kernels } from '../../src/kernels/index.ts';
import { runCase } from '../../src/kernels/qualify.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

describe.each(kernels.map((kernel) => [kernel.name, kernel] as const))('kernel %s', (_name, kernel) => {
  test('compiles without an error', async ({ skip }) => {
    skip(!supports(gpu(), kernel), 'the device cannot run this form');
    await checkShader(gpu(), kernel);
  });
  test.each(kernel.cases().map((run) => [run.name, run] as const))('is within its bound: %s', async (_case, run) => {
    if (!supports(gpu(), kernel)) return;
    const result = await runCase(gpu(), kernel, run);
    expect(result).toMatchObject({ stable: true, guarded: true });
    expect(result.worst, result.at).toBeLessThanOrEqual(1);
    expect(result.passed).toBe(true);
  });
});
