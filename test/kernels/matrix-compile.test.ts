// The family's shaders through Dawn's null backend, which has subgroup matrices and no GPU: they must compile on a machine
// that cannot run them. Its workgroup memory is the core's 16 KiB, so the tall tiles end at that one complaint.

import { beforeAll, describe, expect, test } from 'vitest';
import { create, globals } from 'webgpu';
import { loadWgsl } from '../../src/gpu/wgsl-node.ts';
import { matrixFeature, matrixKernels } from '../../src/kernels/matrix-index.ts';

let instance: GPU;
let device: GPUDevice;
beforeAll(async () => {
  Object.assign(globalThis, globals);
  instance = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia']);
  const adapter = await instance.requestAdapter();
  if (!adapter) throw new Error('the null backend gave no adapter');
  const requiredFeatures = [matrixFeature, 'shader-f16', 'subgroups'] as GPUFeatureName[];
  device = await adapter.requestDevice({ requiredFeatures });
});

/** What the core's limits refuse: 16 KiB of workgroup memory, 256 invocations, 8 buffers; and subgroups of 128. */
const limits =
  /total use of workgroup storage \(\d+ bytes\) is larger than|uses workgroup_size|number of storage buffers|multiple of the device maxSubgroupSize \(128\)/;

/** What is wrong with a pipeline of a kernel; null if nothing. */
async function pipelineError(name: string, constants: Readonly<Record<string, number>>): Promise<string | null> {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code: loadWgsl(`${name}.wgsl`) });
  device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main', constants } });
  return (await device.popErrorScope())?.message ?? null;
}

describe.each(matrixKernels.map((kernel) => [kernel.name, kernel] as const))('shaders/%s.wgsl', (name, kernel) => {
  test('has no message from the compiler', async () => {
    const info = await device.createShaderModule({ code: loadWgsl(`${name}.wgsl`) }).getCompilationInfo();
    expect(info.messages.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`)).toEqual([]);
  });

  test('makes a pipeline with the constants of each of its cases, but for the core limits', async () => {
    for (const run of kernel.cases()) {
      const error = await pipelineError(name, { ...kernel.constants, ...run.constants });
      if (error !== null) expect(error).toMatch(limits);
    }
  });
});

test('a wrong shader is refused, so the tests above can fail', async () => {
  device.pushErrorScope('validation');
  device.createShaderModule({ code: loadWgsl('matrix-matmul.wgsl').replace('row_major>', 'no_major>') });
  expect((await device.popErrorScope())?.message).toMatch(/no_major/);
});
