// Streams one weight in pieces small enough for a staging buffer, in the storage that keeps its values exactly.
// Not an upload. Invariant: no value is ever rounded: BF16 stays packed bf16, F16 and F32 become f32.
import { decodeToF32 } from '../lib/half.ts';
import { fileFault } from './file-fault.ts';
import type { FileSource } from './file-source.ts';
import { elementCount, readTensorRange, type TensorRef } from './safetensors.ts';
import { dtypeBytes } from './safetensors-header.ts';

/** A run of consecutive elements, row-major; `offsetElements` is even. `values` of bf16 are bit patterns. */
export type WeightChunk =
  | { offsetElements: number; storage: 'bf16'; exactBf16: true; values: Uint16Array<ArrayBuffer> }
  | { offsetElements: number; storage: 'f32'; exactBf16: false; values: Float32Array<ArrayBuffer> };

/** A source that reads straight into the caller's memory, so that a checkpoint is copied once on its way to the device. */
export interface DirectSource extends FileSource {
  /** Fills `into` with the bytes of a file from `offsetBytes` on, or throws ModelFileError. */
  readInto(name: string, offsetBytes: number, into: Uint8Array): Promise<void>;
}

/** Whether a source reads into the caller's memory. */
export function isDirect(source: FileSource): source is DirectSource {
  return 'readInto' in source;
}

/** The storage that holds a tensor's values exactly: packed bf16 for BF16, f32 for F16 and F32. */
export function weightStorage(ref: TensorRef): 'bf16' | 'f32' {
  return ref.dtype === 'BF16' ? 'bf16' : 'f32';
}

/**
 * The tensor in order, at most `chunkBytes` of values at a time (at least two elements). Chunks are whole rows where
 * one fits, and start at even elements, so that packed bf16 pairs are never split over two u32 words.
 */
export async function* readWeightChunks(
  source: FileSource,
  ref: TensorRef,
  chunkBytes: number,
): AsyncGenerator<WeightChunk> {
  const { dtype } = ref;
  if (dtype !== 'BF16' && dtype !== 'F16' && dtype !== 'F32') {
    throw fileFault('wrong-dtype', {
      doing: `reading ${source.label}/${ref.file}, tensor ${ref.name}`,
      found: `dtype ${dtype}`,
      wanted: 'BF16, F16 or F32',
      remedy: 'Convert the checkpoint.',
    });
  }
  const total = elementCount(ref);
  const step = chunkElements(ref, chunkBytes);
  const width = dtypeBytes[dtype];
  for (let at = 0; at < total; at += step) {
    const length = Math.min(step, total - at);
    const bytes = await readTensorRange(source, ref, at * width, length * width);
    if (dtype === 'BF16') {
      yield { offsetElements: at, storage: 'bf16', exactBf16: true, values: new Uint16Array(bytes.buffer) };
    } else {
      yield { offsetElements: at, storage: 'f32', exactBf16: false, values: decodeToF32(bytes, dtype) };
    }
  }
}

function chunkElements(ref: TensorRef, chunkBytes: number): number {
  const most = Math.max(2, Math.floor(chunkBytes / (weightStorage(ref) === 'bf16' ? 2 : 4)));
  const columns = ref.shape.at(-1) ?? 1;
  const rows = columns === 0 ? 0 : Math.floor(most / columns);
  const evenRows = columns % 2 === 0 ? rows : rows - (rows % 2);
  return evenRows > 0 ? evenRows * columns : most - (most % 2);
}
