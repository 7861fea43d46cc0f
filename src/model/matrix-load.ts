// A checkpoint on the device for one kernel family: the one place where the choice is made.
// Not a fallback: a family that the device lacks is an error. Invariant: the weights on the device are the same bytes for
// both families.
import type { Gpu, KernelFamily } from '../gpu/device.ts';
import { type MatrixReport, useMatrixFamily } from './matrix-weights.ts';
import type { ModelFiles } from './model-files.ts';
import { type GpuModel, type LoadOptions, loadWeights } from './weights.ts';

/**
 * Loads a checkpoint and makes it use a family. The report is null for the portable one.
 * @throws DeviceError `no-subgroup-matrix`, ModelFileError `non-finite-weight`, and what `loadWeights` throws.
 */
export async function loadFamilyWeights(
  gpu: Gpu,
  files: ModelFiles,
  family: KernelFamily,
  options: LoadOptions,
): Promise<{ model: GpuModel; report: MatrixReport | null }> {
  const model = await loadWeights(gpu, files, options);
  if (family === 'portable') return { model, report: null };
  try {
    return await useMatrixFamily(gpu, model);
  } catch (error) {
    model.destroy();
    throw error;
  }
}
