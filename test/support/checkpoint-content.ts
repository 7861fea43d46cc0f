// A small but whole checkpoint for tests: deterministic bytes in the place of the tensor files, and a complete state.
import type { CheckpointContent } from '../../src/checkpoint.ts';
import { type CheckpointIdentity, f32BitsHex } from '../../src/checkpoint-state.ts';
import { philox4x32, RNG_DEFINITION } from '../../src/lib/rng.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';

/** Bytes that differ by step and file, from the run's own generator. */
export function someBytes(length: number, step: number, file: number): Uint8Array {
  const words = Array.from({ length: Math.ceil(length / 16) }, (_, i) => philox4x32([i, file, 0, 0], [step, 1]));
  return new Uint8Array(Uint32Array.from(words.flat()).buffer).slice(0, length);
}

export const identity: CheckpointIdentity = {
  baseModel: sha256Hex('base'),
  tokenizer: sha256Hex('tokenizer'),
  chatTemplate: sha256Hex('template'),
  generationConfig: sha256Hex('{"eos_token_id":[151645,151643]}'),
  environment: 'german/1',
  kernelFamily: 'portable',
  device: { vendor: 'mesa', description: 'llvmpipe' },
};

export function checkpointContent(step: number): CheckpointContent {
  return {
    files: {
      'adapter_config.json': new TextEncoder().encode('{"lora_alpha":32,"r":16}'),
      'adapter_model.safetensors': someBytes(1000, step, 1),
      'optimizer.safetensors': someBytes(2000, step, 2),
    },
    state: {
      schema: 'shaderl.checkpoint/1',
      runId: 'test',
      planSha256: sha256Hex('plan'),
      step,
      schedule: { kind: 'linear', position: step, total: 256 },
      learningRateBits: f32BitsHex((5e-6 * (256 - step)) / 256),
      rng: { definition: RNG_DEFINITION, seed: 7, counters: { step: step + 1 } },
      cursor: { epoch: 0, index: step },
      identity,
      journal: { lines: 0, sha256: '0'.repeat(64) },
    },
  };
}
