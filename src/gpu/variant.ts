// Which form of a kernel suits a device: forms of one kernel give the same bits, so the choice is about time alone.
// Not a kernel family: families have different arithmetic. Invariant: the form follows from the device's identity, never
// from the batch, and every form that a device can run is compared with the plain one when it is qualified.
import type { DeviceIdentity, Gpu } from './device.ts';
import type { Kernel } from './kernel.ts';

/**
 * `plain`: WebGPU core without workgroup memory in products. `lanes`: lanes of a subgroup of eight share what they load;
 * for software adapters, where a load costs more than several multiplications. `tiles`: workgroup memory, for GPUs.
 */
export type KernelVariant = 'plain' | 'lanes' | 'tiles';

/** The lanes of a subgroup that the `lanes` kernels are written for. */
const LANES = 8;

function hasLanes({ features, subgroupSize }: DeviceIdentity): boolean {
  return features.includes('subgroups') && subgroupSize[0] === LANES && subgroupSize[1] === LANES;
}

/** The form of the kernels that a device runs. */
export function kernelVariant(identity: DeviceIdentity): KernelVariant {
  if (!identity.software) return 'tiles';
  return hasLanes(identity) ? 'lanes' : 'plain';
}

/** Whether a device can run a kernel at all. */
export function supports(gpu: Gpu, kernel: Kernel): boolean {
  return kernel.needs !== 'subgroups-of-8' || hasLanes(gpu.identity);
}
