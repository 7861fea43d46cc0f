// The trainer's state as the bytes of a checkpoint, and back: PEFT's adapter files and AdamW's moments.
// Not the seal (checkpoint.ts). Invariant: equal state gives equal bytes, and decoding gives the exact f32 bits.
import type { CheckpointContent, VerifiedCheckpoint } from './checkpoint.ts';
import { type CheckpointIdentity, checkpointState, requireIdentity } from './checkpoint-state.ts';
import type { OptimizerState } from './grpo/optimizer.ts';
import { CheckpointError } from './lib/errors.ts';
import { issuesText } from './lib/zod-issues.ts';
import { adapterTensors, encodeAdapter, type LoadedAdapter, loadAdapter } from './model/adapter-files.ts';
import { CANARY_FILE } from './model/canary.ts';
import type { Architecture } from './model/config.ts';
import { fileFault } from './model/file-fault.ts';
import { type FileSource, memorySource } from './model/file-source.ts';
import type { LoraConfig } from './model/lora.ts';
import { openSafetensors, readF32 } from './model/safetensors.ts';
import { bytesOf, encodeSafetensors, type FileTensors } from './model/safetensors-write.ts';

/** What an evaluation has in common with the training: device and kernels may differ. */
export type SealedBase = Pick<CheckpointIdentity, 'baseModel' | 'tokenizer' | 'chatTemplate' | 'generationConfig'>;

export interface TrainState extends OptimizerState {
  adapter: ReadonlyMap<string, Float32Array>;
}

/** AdamW's m and v in f32, under `m.<tensor>` and `v.<tensor>`, flat: what optimizer.safetensors is made of. */
function optimizerTensors({ m, v }: OptimizerState): FileTensors {
  const named = [...m].map(([name, values]) => ({ name: `m.${name}`, values }));
  named.push(...[...v].map(([name, values]) => ({ name: `v.${name}`, values })));
  const tensors = named.map(({ name, values }) => ({
    name,
    dtype: 'F32' as const,
    shape: [values.length],
    bytes: bytesOf(values),
  }));
  return { tensors, metadata: { format: 'shaderl-adamw' } };
}

/** The bytes of optimizer.safetensors. */
export function encodeOptimizer(state: OptimizerState): Uint8Array {
  const { tensors, metadata } = optimizerTensors(state);
  return encodeSafetensors(tensors, metadata);
}

/** The tensors of the two files of a checkpoint that hold the trainer's state, for whoever needs no file of them. */
export function trainStateTensors(state: TrainState, config: LoraConfig) {
  return { adapter: adapterTensors({ config, tensors: new Map(state.adapter) }), optimizer: optimizerTensors(state) };
}

/** The files of a checkpoint. `baseModel` goes into adapter_config.json. */
export function encodeTrainState(state: TrainState, config: LoraConfig, baseModel: string): CheckpointContent['files'] {
  return {
    ...encodeAdapter({ config, baseModel, tensors: new Map(state.adapter) }),
    'optimizer.safetensors': encodeOptimizer(state),
  };
}

/** The adapter of a verified checkpoint with its canary, as loading its folder would give it. */
export async function checkpointAdapter(checkpoint: VerifiedCheckpoint, arch: Architecture): Promise<LoadedAdapter> {
  const { files, canary, folder } = checkpoint;
  const source = memorySource(folder, { ...files, ...(canary ? { [CANARY_FILE]: canary } : {}) });
  return { ...(await loadAdapter(source, arch)), sealed: true };
}

/**
 * Refuses a sealed checkpoint on another base model, tokenizer, chat template or generation config than it was trained
 * on. A plain adapter folder, without state.json, says nothing of it. `present`: hashes of the opened base.
 * @throws CheckpointError `identity-mismatch` naming each item, ModelFileError `bad-state`.
 */
export async function requireSealedBase(source: FileSource, present: SealedBase): Promise<void> {
  const size = await source.size('state.json');
  if (size === null) return;
  let value: unknown = null;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(await source.read('state.json', 0, size)));
  } catch {
    // Reported below: null is no state.
  }
  const state = checkpointState.safeParse(value);
  if (!state.success) {
    throw fileFault('bad-state', {
      doing: `reading ${source.label}/state.json`,
      found: issuesText(state.error, value),
      wanted: 'the state that was sealed with the adapter',
      remedy: 'Restore the file from the checkpoint, or copy the two adapter files alone to use them without it.',
    });
  }
  const { identity } = state.data;
  requireIdentity(source.label, identity, { ...identity, ...present });
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
