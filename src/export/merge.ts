// Merges a LoRA adapter into its base weights, as PEFT's plain merge does: W <- round(fp32(W) + s * (B A)), one
// rounding to the dtype that W is stored in (bf16 for most checkpoints). Streams: one chunk of one tensor is in memory
// at a time.
// Not a way to train or evaluate: a small update can be lost in the rounding, so the adapter stays the master artefact
// and every merge comes with its audit. Invariant: tensors that are not adapted are copied bit for bit.
import { decodeToF32, encodeBf16, f32ToF16 } from '../lib/half.ts';
import { checkAdapter } from '../model/adapter-files.ts';
import { fileFault } from '../model/file-fault.ts';
import type { FileSource } from '../model/file-source.ts';
import { type Adapter, adapterTensorNames, loraScale } from '../model/lora.ts';
import type { ModelFiles } from '../model/model-files.ts';
import { readTensorRange, type TensorRef } from '../model/safetensors.ts';
import { bytesOf, streamSafetensors, type TensorStream } from '../model/safetensors-write.ts';
import type { WeightChunk } from '../model/weight-chunks.ts';
import { addTally, figuresOf, type MergeAudit, type MergeTally, newTally, tallyElement } from './merge-audit.ts';

/** Where the files of a merged model go. `put` consumes all chunks before it resolves. */
export interface MergeSink {
  put(name: string, chunks: AsyncIterable<Uint8Array>): Promise<void>;
}

/** The update of one linear layer: A f32 [rank, columns], B f32 [rows, rank]. */
export interface LoraUpdate {
  a: Float32Array;
  b: Float32Array;
  rank: number;
  columns: number;
  scale: number;
}

// Copied beside the weights where the base has them. Model cards and licences describe the base and stay with it.
const companions = [
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'tokenizer.model',
  'chat_template.jinja',
  'chat_template.json',
];

const CHUNK_BYTES = 8 * 2 ** 20;

/** Relative error of the whole update above which a merged model is marked as not equivalent. */
export const MERGE_THRESHOLD = 0.1;

/**
 * Writes config, tokenizer files and one model.safetensors with merged weights into `sink`, and returns the audit.
 * Throws ModelFileError if the adapter does not fit the model or a merged value is not finite.
 */
export async function mergeAdapter(
  files: ModelFiles,
  adapter: Adapter,
  sink: MergeSink,
  threshold = MERGE_THRESHOLD,
): Promise<MergeAudit> {
  checkAdapter(adapter, files.architecture);
  const updates = updatesByWeight(files, adapter);
  for (const name of companions) {
    const size = await files.source.size(name);
    if (size !== null) await sink.put(name, fileChunks(files.source, name, size));
  }
  const tallies = new Map<string, MergeTally>();
  const streams = [...files.tensors.values()].map((ref): TensorStream => {
    const update = updates.get(ref.name);
    const { name, dtype, shape } = ref;
    if (!update) return { name, dtype, shape, chunks: () => tensorChunks(files.source, ref) };
    const tally = newTally();
    tallies.set(name, tally);
    return { name, dtype, shape, chunks: () => mergedChunks(files, ref, update, tally) };
  });
  await sink.put('model.safetensors', streamSafetensors(streams, { format: 'pt' }));
  const total = newTally();
  for (const tally of tallies.values()) addTally(total, tally);
  const totals = figuresOf(total);
  return {
    formula: 'W <- round(fp32(W) + s * (B A)), one rounding to the stored dtype',
    scale: loraScale(adapter.config),
    rank: adapter.config.rank,
    baseModel: adapter.baseModel,
    threshold,
    verdict: totals.relativeDeltaError <= threshold ? 'equivalent' : 'not equivalent',
    totals,
    tensors: Object.fromEntries(
      [...tallies].map(([name, tally]) => [name, { dtype: files.weight(name).dtype, ...figuresOf(tally) }]),
    ),
  };
}

function updatesByWeight(files: ModelFiles, adapter: Adapter): Map<string, LoraUpdate> {
  const { rank } = adapter.config;
  const scale = loraScale(adapter.config);
  const updates = new Map<string, LoraUpdate>();
  for (const { name, part, shape } of adapterTensorNames(files.architecture, adapter.config)) {
    if (part !== 'A') continue;
    const stem = name.slice(0, -'.lora_A'.length);
    const a = adapter.tensors.get(name)!;
    const b = adapter.tensors.get(`${stem}.lora_B`)!;
    updates.set(`model.${stem}.weight`, { a, b, rank, columns: shape[1], scale });
  }
  return updates;
}

async function* mergedChunks(
  files: ModelFiles,
  ref: TensorRef,
  update: LoraUpdate,
  tally: MergeTally,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of files.readWeightChunks(ref, CHUNK_BYTES)) {
    yield bytesOf(mergeChunk(chunk, ref, update, tally));
  }
}

/**
 * The chunk plus the update, in the dtype of `ref`: bit patterns for BF16 and F16, values for F32. The product over the
 * rank is summed in f64 in ascending order and rounded once to f32, then scaled and added in f32 as PEFT does.
 */
export function mergeChunk(
  chunk: WeightChunk,
  ref: Pick<TensorRef, 'name' | 'dtype'>,
  update: LoraUpdate,
  tally: MergeTally,
): Uint16Array | Float32Array {
  const before = chunk.storage === 'bf16' ? decodeToF32(bytesOf(chunk.values), 'BF16') : chunk.values;
  const delta = updateRange(update, chunk.offsetElements, before.length);
  const sums = before.map((value, i) => value + delta[i]!);
  const merged =
    ref.dtype === 'BF16' ? encodeBf16(sums) : ref.dtype === 'F16' ? Uint16Array.from(sums, f32ToF16) : sums;
  const after = ref.dtype === 'F32' ? sums : decodeToF32(bytesOf(merged), ref.dtype as 'BF16' | 'F16');
  for (let i = 0; i < before.length; i++) {
    if (!Number.isFinite(after[i]!)) throw notFinite(ref, chunk.offsetElements + i, before[i]!, delta[i]!);
    tallyElement(tally, before[i]!, after[i]!, delta[i]!);
  }
  return merged;
}

/** s * (B A) for `length` elements of the row-major [rows, columns] matrix from element `offset` on. f32. */
function updateRange(update: LoraUpdate, offset: number, length: number): Float32Array<ArrayBuffer> {
  const { a, b, rank, columns } = update;
  const scale = Math.fround(update.scale);
  const out = new Float32Array(length);
  const sums = new Float64Array(columns);
  for (let done = 0; done < length; ) {
    const row = Math.floor((offset + done) / columns);
    const column = (offset + done) % columns;
    const count = Math.min(columns - column, length - done);
    sums.fill(0, 0, count);
    for (let r = 0; r < rank; r++) {
      const factor = b[row * rank + r]!;
      const from = r * columns + column;
      for (let c = 0; c < count; c++) sums[c]! += factor * a[from + c]!;
    }
    for (let c = 0; c < count; c++) out[done + c] = Math.fround(sums[c]!) * scale;
    done += count;
  }
  return out;
}

async function* tensorChunks(source: FileSource, ref: TensorRef): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < ref.lengthBytes; at += CHUNK_BYTES) {
    yield await readTensorRange(source, ref, at, Math.min(CHUNK_BYTES, ref.lengthBytes - at));
  }
}

async function* fileChunks(source: FileSource, name: string, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < size; at += CHUNK_BYTES) yield await source.read(name, at, Math.min(CHUNK_BYTES, size - at));
}

function notFinite(ref: Pick<TensorRef, 'name' | 'dtype'>, element: number, before: number, delta: number) {
  return fileFault('not-finite', {
    doing: `merging ${ref.name}, element ${element}`,
    found: `${before} + ${delta}, which ${ref.dtype} cannot hold`,
    wanted: 'a finite weight',
    remedy: 'Keep the adapter apart from the base model.',
  });
}
