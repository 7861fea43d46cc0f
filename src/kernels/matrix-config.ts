// What an adapter offers in subgroup matrices, and the shapes that the family's kernels use.
// Not a feature request: device.ts opens the device. Invariant: f16 operands with f32 results at 16x16x16 and, for few
// rows, 16x8x16, or no family.

import { wideStorage } from './matrix-tiles.ts';

/** A subgroup-matrix shape of an adapter. */
export interface MatrixConfig {
  componentType: string;
  resultComponentType: string;
  M: number;
  N: number;
  K: number;
}

/** The shapes that an adapter lists. They stand in the adapter's information alone: a device's lists none. */
export function matrixConfigs(adapter: GPUAdapter): MatrixConfig[] {
  const info = adapter.info as GPUAdapterInfo & { subgroupMatrixConfigs?: Iterable<MatrixConfig> };
  return [...(info.subgroupMatrixConfigs ?? [])].map(({ componentType, resultComponentType, M, N, K }) => ({
    componentType,
    resultComponentType,
    M,
    N,
    K,
  }));
}

/** Workgroup memory of the largest product of few rows, in bytes (matrix-few-64x16x128). */
export const fewStorage = 43_536;

/** Whether the family's kernels run: f16 operands, f32 results, 16x16x16 and 16x8x16, and subgroups of 32. */
export function supportsMatrixFamily(adapter: GPUAdapter): boolean {
  const { subgroupMinSize, subgroupMaxSize } = adapter.info;
  const offers = (N: number) =>
    matrixConfigs(adapter).some(
      (c) => c.componentType === 'f16' && c.resultComponentType === 'f32' && c.M === 16 && c.N === N && c.K === 16,
    );
  return (
    adapter.features.has('shader-f16') &&
    subgroupMinSize === 32 &&
    subgroupMaxSize === 32 &&
    adapter.limits.maxComputeWorkgroupStorageSize >= Math.max(fewStorage, wideStorage) &&
    offers(16) &&
    offers(8)
  );
}
