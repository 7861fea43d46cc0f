// What the bench would allocate, before it does. Not an exact count: buffers of single figures come and go.
import { memoryNeed } from '../src/doctor.ts';
import type { DeviceIdentity } from '../src/gpu/device.ts';
import type { LoraConfig } from '../src/model/lora.ts';
import type { ModelFiles } from '../src/model/model-files.ts';
import type { BenchSettings } from './settings.ts';

/** Bytes beyond the weights, which are loaded by then. */
export function doctorNeed(
  identity: DeviceIdentity,
  files: ModelFiles,
  settings: BenchSettings,
  lora: LoraConfig,
): number {
  const { group, promptTokens, newTokens } = settings;
  const { total, weights } = memoryNeed(identity, files, { slots: group, context: promptTokens + newTokens, lora });
  return total - weights;
}
