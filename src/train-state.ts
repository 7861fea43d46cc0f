// The trainer's state as the bytes of a checkpoint, and back: PEFT's adapter files and AdamW's moments.
// Not the seal (checkpoint.ts). Invariant: equal state gives equal bytes, and decoding gives the exact f32 bits.
import type { CheckpointContent } from './checkpoint.ts';
import type { OptimizerState } from './grpo/optimizer.ts';
import { CheckpointError } from './lib/errors.ts';
import { encodeAdapter, loadAdapter } from './model/adapter-files.ts';
import type { Architecture } from './model/config.ts';
import { memorySource } from './model/file-source.ts';
import type { LoraConfig } from './model/lora.ts';
import { openSafetensors, readF32 } from './model/safetensors.ts';
import { bytesOf, encodeSafetensors } from './model/safetensors-write.ts';

export interface TrainState extends OptimizerState {
  adapter: ReadonlyMap<string, Float32Array>;
}

/** AdamW's m and v in f32, under `m.<tensor>` and `v.<tensor>`, flat. */
export function encodeOptimizer({ m, v }: OptimizerState): Uint8Array {
  const tensors = [...m].map(([name, values]) => ({ name: `m.${name}`, values }));
  tensors.push(...[...v].map(([name, values]) => ({ name: `v.${name}`, values })));
  return encodeSafetensors(
    tensors.map(({ name, values }) => ({
      name,
      dtype: 'F32' as const,
      shape: [values.length],
      bytes: bytesOf(values),
    })),
    { format: 'shaderl-adamw' },
  );
}

/** The files of a checkpoint. `baseModel` goes into adapter_config.json. */
export function encodeTrainState(state: TrainState, config: LoraConfig, baseModel: string): CheckpointContent['files'] {
  return {
    ...encodeAdapter({ config, baseModel, tensors: new Map(state.adapter) }),
    'optimizer.safetensors': encodeOptimizer(state),
  };
}

/** Reads a checkpoint's files back. @throws ModelFileError or CheckpointError for files that do not fit the model. */
export async function decodeTrainState(
  files: CheckpointContent['files'],
  arch: Architecture,
  folder: string,
): Promise<TrainState & { config: LoraConfig }> {
  const source = memorySource(folder, { ...files });
  const { config, tensors: adapter } = await loadAdapter(source, arch);
  const optimizer = await openSafetensors(source, 'optimizer.safetensors');
  const read = async (prefix: 'm' | 'v') => {
    const moments = new Map<string, Float32Array>();
    for (const [name, weights] of adapter) {
      const ref = optimizer.tensors.get(`${prefix}.${name}`);
      if (!ref || ref.shape.reduce((a, b) => a * b, 1) !== weights.length) {
        const found = ref ? `shape [${ref.shape}]` : 'no such tensor';
        throw new CheckpointError(
          'bad-moments',
          `reading ${folder}/optimizer.safetensors, ${prefix}.${name}: found ${found}; wanted ${weights.length} values. Resume from another checkpoint.`,
        );
      }
      moments.set(name, await readF32(source, ref));
    }
    return moments;
  };
  return { config, adapter, m: await read('m'), v: await read('v') };
}
