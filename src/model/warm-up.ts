// The pipelines of a model's work, known before any weight is read, so that they compile while the checkpoint is read.
// Not a list kept by hand: the work itself is rehearsed on a device that computes nothing. Invariant: a rehearsal reads no
// tensor, and what it misses is compiled when it is first used, with the same result.
import type { Gpu, KernelFamily } from '../gpu/device.ts';
import { compileAhead, type PipelineUse } from '../gpu/pipeline.ts';
import { rehearse } from '../gpu/rehearsal.ts';
import { loadFamilyWeights } from './matrix-load.ts';
import type { MatrixReport } from './matrix-weights.ts';
import type { ModelFiles } from './model-files.ts';
import type { GpuModel, LoadOptions } from './weights.ts';

/** Layers of a rehearsal: the first one and one like all others. Pipelines follow from shapes, which layers share. */
const rehearsedLayers = 2;

/** A checkpoint of the same shapes with a few layers, no tensor of which has bytes to read. */
function hollow(files: ModelFiles): ModelFiles {
  const { label, list, size, read } = files.source;
  const architecture = { ...files.architecture, layers: Math.min(files.architecture.layers, rehearsedLayers) };
  return { ...files, architecture, source: { label, list, size, read }, readWeightChunks: async function* () {} };
}

/**
 * What will be done with a model: makes its samplers and trainers for the model that it is given, which has fewer layers
 * than the real one, and runs each once.
 */
export type Rehearsal = (stage: Gpu, model: GpuModel) => Promise<void>;

/** The pipelines that `work` would run on a model of a checkpoint, in the shapes in which it runs there. */
export async function pipelinesOfWork(
  gpu: Gpu,
  files: ModelFiles,
  family: KernelFamily,
  positions: number,
  work: Rehearsal,
): Promise<PipelineUse[]> {
  return rehearse(gpu, async (stage) => {
    const { model } = await loadFamilyWeights(stage, hollow(files), family, { positions });
    await work(stage, model);
  });
}

export interface WarmOptions extends LoadOptions {
  onPipelines?: (done: number, total: number) => void;
  /** Told when the weights are on the device, and when all pipelines are compiled. */
  onStage?: (stage: 'weights' | 'pipelines') => void;
}

/**
 * Loads a checkpoint for what will be done with it: by `loadWarm`, except on software adapters, which compile when a
 * pipeline is first used, so that nothing would be gained.
 */
export function loadForWork(
  gpu: Gpu,
  files: ModelFiles,
  family: KernelFamily,
  options: LoadOptions,
  work: Rehearsal,
): Promise<{ model: GpuModel; report: MatrixReport | null }> {
  return gpu.identity.software
    ? loadFamilyWeights(gpu, files, family, options)
    : loadWarm(gpu, files, family, options, work);
}

/**
 * Loads a checkpoint as `loadFamilyWeights` does, and compiles meanwhile what `work` will run.
 * @throws what either throws; then nothing stays on the device.
 */
export async function loadWarm(
  gpu: Gpu,
  files: ModelFiles,
  family: KernelFamily,
  options: WarmOptions,
  work: Rehearsal,
): Promise<{ model: GpuModel; report: MatrixReport | null }> {
  async function compile(): Promise<void> {
    await compileAhead(gpu, await pipelinesOfWork(gpu, files, family, options.positions, work), options.onPipelines);
    options.onStage?.('pipelines');
  }
  async function load() {
    const loaded = await loadFamilyWeights(gpu, files, family, options);
    options.onStage?.('weights');
    return loaded;
  }
  const [compiled, loaded] = await Promise.allSettled([compile(), load()]);
  if (loaded.status === 'rejected') throw loaded.reason;
  if (compiled.status === 'rejected') {
    loaded.value.model.destroy();
    throw compiled.reason;
  }
  return loaded.value;
}
