// SHA-256 of the trainer's state as it would be sealed, without making the files.
// Not the seal. Invariant: the digests are those of the bytes that `encodeTrainState` makes. Hashing yields between
// pieces, so that the rollouts of the next step go on beside it: the state of a 1.7B model's adapter is 209 MB.
import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { LoraConfig } from './model/lora.ts';
import { type FileTensors, layoutSafetensors } from './model/safetensors-write.ts';
import { type TrainState, trainStateTensors } from './train-state.ts';

/** Bytes that are hashed at a time: some 3 ms, less than a few steps of decoding that are sent ahead. */
const piece = 4 * 2 ** 20;

async function fileSha256({ tensors, metadata }: FileTensors): Promise<string> {
  const { head, ordered } = layoutSafetensors(tensors, metadata);
  const hash = createHash('sha256').update(head);
  let since = 0;
  for (const { bytes } of ordered) {
    for (let at = 0; at < bytes.length; at += piece) {
      const part = bytes.subarray(at, at + piece);
      hash.update(part);
      since += part.length;
      if (since >= piece) {
        since = 0;
        await setImmediate();
      }
    }
  }
  return hash.digest('hex');
}

/**
 * SHA-256 of adapter_model.safetensors and optimizer.safetensors of a state.
 * @throws ModelFileError for a value that is not finite, as `encodeTrainState` does.
 */
export async function trainStateDigests(
  state: TrainState,
  config: LoraConfig,
): Promise<{ adapter: string; optimizer: string }> {
  const { adapter, optimizer } = trainStateTensors(state, config);
  return { adapter: await fileSha256(adapter), optimizer: await fileSha256(optimizer) };
}
