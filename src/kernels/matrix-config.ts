// What an adapter offers in subgroup matrices, and the one shape that the family's kernels use.
// Not a feature request: device.ts opens the device. Invariant: f16 operands with f32 results at 16x16x16, or no family.

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

/** Whether the family's kernels run: f16 operands, f32 results, 16x16x16, and four subgroups in 128 invocations. */
export function supportsMatrixFamily(adapter: GPUAdapter): boolean {
  const { subgroupMinSize, subgroupMaxSize } = adapter.info;
  return (
    adapter.features.has('shader-f16') &&
    subgroupMinSize === 32 &&
    subgroupMaxSize === 32 &&
    adapter.limits.maxComputeWorkgroupStorageSize >= 33_280 &&
    matrixConfigs(adapter).some(
      (c) => c.componentType === 'f16' && c.resultComponentType === 'f32' && c.M === 16 && c.N === 16 && c.K === 16,
    )
  );
}
