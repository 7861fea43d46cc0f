// The kernel registry's cases in a browser page: the same shaders, references and cases as in Node, on SwiftShader.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Gpu, openGpu } from '../../../src/gpu/device.ts';
import { supports } from '../../../src/gpu/variant.ts';
import { kernels } from '../../../src/kernels/index.ts';
import { runCase } from '../../../src/kernels/qualify.ts';
import { canonicalChecks } from '../../../src/qualification-canonical.ts';

let gpu: Gpu;
beforeAll(async () => {
  gpu = await openGpu();
});
afterAll(() => gpu?.destroy());

describe('in a browser page', () => {
  for (const kernel of kernels) {
    it(`${kernel.name} meets its f64 reference in every case, with bits that repeat`, async (context) => {
      // A form of a kernel for other adapters; the form that this adapter runs is in the registry too.
      if (!supports(gpu, kernel)) context.skip(`${kernel.name} needs ${kernel.needs}`);
      const cases = kernel.cases();
      expect(cases.length).toBeGreaterThan(0);
      const results = [];
      for (const run of cases) results.push(await runCase(gpu, kernel, run, 2));
      expect(results.filter((result) => !result.passed)).toEqual([]);
      gpu.check();
    });
  }

  it('a token has the same bits in every schedule of the forward pass', async () => {
    const results = await canonicalChecks(gpu, 'portable');
    expect(results.length).toBeGreaterThan(3);
    expect(results.filter((result) => !result.passed)).toEqual([]);
  });
});
