// The device's copy bandwidth, which everything that streams weights is held against: the faster of a shader and a command.
// Not a kernel of the program: the shader does nothing else and is compiled here. Invariant: bytes are counted twice, as
// they are read and as they are written.
import { allocate, release } from '../src/gpu/buffers.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { bestMs, type Effort } from './measure.ts';

const perWorkgroup = 1024;
const shader = `
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = group.x * ${perWorkgroup}u + lane;
  target_[at] = source[at];
  target_[at + 256u] = source[at + 256u];
  target_[at + 512u] = source[at + 512u];
  target_[at + 768u] = source[at + 768u];
}`;

/** GB/s of the fastest copy between two buffers. */
export async function copyRate(gpu: Gpu, effort: Effort): Promise<number> {
  const { device } = gpu;
  const { software, limits } = gpu.identity;
  const unit = perWorkgroup * 16;
  const wanted = software ? 32 * 2 ** 20 : 512 * 2 ** 20;
  const groups = Math.min(65_535, Math.floor(Math.min(wanted, limits.maxStorageBufferBindingSize) / unit));
  const bytes = groups * unit;
  const inner = software ? 1 : 40;
  const from = allocate(gpu, 'bench.copy.from', bytes);
  const to = allocate(gpu, 'bench.copy.to', bytes);
  try {
    const module = device.createShaderModule({ label: 'bench.copy', code: shader });
    const pipeline = device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } });
    const entries = [from, to].map(({ buffer }, binding) => ({ binding, resource: { buffer } }));
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    const submit = (record: (encoder: GPUCommandEncoder) => void) => {
      const encoder = device.createCommandEncoder();
      record(encoder);
      device.queue.submit([encoder.finish()]);
    };
    const byShader = await bestMs(gpu, inner, effort, () =>
      submit((encoder) => {
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(groups);
        pass.end();
      }),
    );
    const byCommand = await bestMs(gpu, inner, effort, () =>
      submit((encoder) => encoder.copyBufferToBuffer(from.buffer, 0, to.buffer, 0, bytes)),
    );
    return (2 * bytes) / Math.min(byShader, byCommand) / 1e6;
  } finally {
    release(gpu, from);
    release(gpu, to);
  }
}
