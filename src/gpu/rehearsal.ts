// A device that computes nothing: whatever is recorded on it leaves the list of pipelines that the work would run.
// Not a device for tests: every value read from it is zero. Invariant: it has the identity of the real device, so that the
// work takes the same kernels, in the same forms, on both.
import type { Gpu } from './device.ts';
import { type PipelineUse, pipelinesOf } from './pipeline.ts';

const nothing = () => {};

function emptyBuffer({ label = '', size, usage }: GPUBufferDescriptor) {
  return {
    label,
    size,
    usage,
    destroy: nothing,
    unmap: nothing,
    mapAsync: async () => {},
    getMappedRange: (offset = 0, bytes = size - offset) => new ArrayBuffer(bytes),
  };
}

function emptyEncoder() {
  const pass = { setPipeline: nothing, setBindGroup: nothing, dispatchWorkgroups: nothing, end: nothing };
  return {
    beginComputePass: () => pass,
    copyBufferToBuffer: nothing,
    clearBuffer: nothing,
    resolveQuerySet: nothing,
    finish: () => ({}),
  };
}

/** The stage: the part of a device that recorders, buffers and samplers use. */
function stageOf(gpu: Gpu): Gpu {
  const object = () => ({});
  const device = {
    features: gpu.device.features,
    limits: gpu.device.limits,
    queue: { writeBuffer: nothing, submit: nothing, onSubmittedWorkDone: async () => {} },
    createBuffer: emptyBuffer,
    createCommandEncoder: emptyEncoder,
    createBindGroup: object,
    createBindGroupLayout: object,
    createPipelineLayout: object,
    createShaderModule: object,
    createComputePipeline: object,
    createComputePipelineAsync: async () => ({}),
    createQuerySet: () => ({ destroy: nothing }),
    destroy: nothing,
  } as unknown as GPUDevice;
  const { identity, timeoutMs } = gpu;
  return { device, identity, timeoutMs, check: nothing, wait: (_doing, work) => work, destroy: nothing };
}

/** The pipelines that `work` would run on a device, found by doing it on one that computes nothing. */
export async function rehearse(gpu: Gpu, work: (stage: Gpu) => Promise<void>): Promise<PipelineUse[]> {
  const stage = stageOf(gpu);
  await work(stage);
  return pipelinesOf(stage);
}
