// A model in the device worker: its files, text and weights on the GPU.
// Not a run. Invariant: the same loader as in Node, over files that were fetched or picked.
import type { Gpu } from '../src/gpu/device.ts';
import { ModelFileError } from '../src/lib/errors.ts';
import { type FileSource, memorySource } from '../src/model/file-source.ts';
import { type ModelFiles, openModelFiles } from '../src/model/model-files.ts';
import { loadText, type Text } from '../src/model/text.ts';
import { type GpuModel, loadWeights } from '../src/model/weights.ts';
import type { LoadedModel, ModelOrigin } from './device-api.ts';
import { pickedSource } from './picked-source.ts';

export interface DeviceModel {
  label: string;
  files: ModelFiles;
  text: Text;
  gpuModel: GpuModel;
  /** Longest sequence. */
  length: number;
}

const longest = 2048;

async function sourceOf(origin: ModelOrigin): Promise<FileSource> {
  if ('files' in origin) return pickedSource(origin.label, origin.files);
  const files: Record<string, Uint8Array> = {};
  for (const [name, url] of origin.urls) {
    const response = await fetch(url);
    if (!response.ok) {
      const message =
        `loading ${origin.label}/${name}: found status ${response.status}; ` +
        'wanted the file. Reload the page, or pick a local folder.';
      throw new ModelFileError('not-fetched', message);
    }
    files[name] = new Uint8Array(await response.arrayBuffer());
  }
  return memorySource(origin.label, files);
}

/** Opens the files and uploads the weights. Throws ModelFileError naming the file at fault. */
export async function loadDeviceModel(gpu: Gpu, origin: ModelOrigin): Promise<[DeviceModel, LoadedModel]> {
  const began = performance.now();
  const source = await sourceOf(origin);
  const files = await openModelFiles(source);
  const text = await loadText(source);
  const { layers, hiddenSize, vocabSize, maxPositions } = files.architecture;
  const length = Math.min(longest, maxPositions);
  const gpuModel = await loadWeights(gpu, files, { positions: length });
  const seconds = (performance.now() - began) / 1000;
  const { label } = origin;
  return [
    { label, files, text, gpuModel, length },
    { label, layers, hiddenSize, vocabSize, bytes: gpuModel.bytes, seconds },
  ];
}

/** Refuses to go on without a model. */
export function requireModel(model: DeviceModel | null): DeviceModel {
  if (model) return model;
  throw new ModelFileError(
    'no-model',
    'using the device: found no model; wanted one. Load the embedded policy or a local folder first.',
  );
}
