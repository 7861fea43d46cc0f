// An adapter that is not here, as far as a rehearsal asks: an H200's features and limits, and nothing that computes.
import type { Gpu } from '../../src/gpu/device.ts';

const features = ['chromium-experimental-subgroup-matrix', 'shader-f16', 'subgroups', 'timestamp-query'];

/** The adapter, with what a rehearsal needs of a real one. */
export function distant({ identity, timeoutMs, check, wait, destroy }: Gpu): Gpu {
  const limits = {
    ...identity.limits,
    maxBufferSize: 2 ** 40,
    maxStorageBufferBindingSize: 2 ** 31 - 4,
    maxComputeWorkgroupStorageSize: 49_152,
    minStorageBufferOffsetAlignment: 16,
  };
  const device = { features: new Set(features), limits } as unknown as GPUDevice;
  const other = { ...identity, software: false, subgroupSize: [32, 32] as [number, number], features, limits };
  return { device, identity: other, timeoutMs, check, wait, destroy };
}
