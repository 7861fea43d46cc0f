// Opens a Hugging Face checkpoint: architecture, and where each of its tensors lies. No tensor data is read, except to
// compare a tied output head that is stored twice.
// Not an upload (weights.ts). Invariant: an opened checkpoint has exactly the tensors, shapes and dtypes that its
// config asks for; whatever else is in the folder was refused or is named in `notes`.
import { nearestName } from '../lib/nearest.ts';
import { type Architecture, parseArchitecture } from './config.ts';
import { fileFault, sampleNames, showValue } from './file-fault.ts';
import type { FileSource } from './file-source.ts';
import { readJson } from './json-file.ts';
import { readTensorRange, type TensorRef } from './safetensors.ts';
import { locateTensors } from './shard-index.ts';
import { EMBEDDING, expectedTensors, isIgnoredBuffer, OUTPUT_HEAD } from './tensor-names.ts';
import { readWeightChunks, type WeightChunk } from './weight-chunks.ts';

export interface ModelFiles {
  source: FileSource;
  architecture: Architecture;
  /** Exactly the expected tensors, in forward order. A tied model has no `lm_head.weight` here. */
  tensors: ReadonlyMap<string, TensorRef>;
  /** What was passed over or found to be harmless, as sentences. */
  notes: string[];
  /** A tensor by its full name. */
  weight(name: string): TensorRef;
  /** The values of a tensor in chunks; see weight-chunks.ts. */
  readWeightChunks(ref: TensorRef, chunkBytes: number): AsyncGenerator<WeightChunk>;
}

const COMPARE_BYTES = 16 * 2 ** 20;

/** Opens and checks a checkpoint folder. Throws ModelFileError naming the file and tensor at fault. */
export async function openModelFiles(source: FileSource): Promise<ModelFiles> {
  await refuseAdapterFolder(source);
  const config = await readJson(source, 'config.json');
  const hasGeneration = (await source.size('generation_config.json')) !== null;
  const generation = hasGeneration ? await readJson(source, 'generation_config.json') : null;
  const architecture = parseArchitecture(config, generation, source.label);
  const { tensors: found, notes } = await locateTensors(source);
  for (const name of [...found.keys()].filter(isIgnoredBuffer)) {
    found.delete(name);
    notes.push(`${name} is recomputed from config.json and was not read`);
  }
  const head = found.get(OUTPUT_HEAD);
  if (architecture.tied && head) {
    checkShapes(new Map([[OUTPUT_HEAD, [architecture.vocabSize, architecture.hiddenSize]]]), found, source.label);
    await compareTiedHead(source, found, head);
    found.delete(OUTPUT_HEAD);
    notes.push(`${OUTPUT_HEAD} equals ${EMBEDDING} bit for bit; the model is tied and uses the embedding`);
  }
  const expected = expectedTensors(architecture);
  checkNames(expected, found, architecture, source.label);
  checkShapes(expected, found, source.label);
  const tensors = new Map([...expected.keys()].map((name) => [name, found.get(name)!]));
  return {
    source,
    architecture,
    tensors,
    notes,
    weight: (name) => tensors.get(name) ?? unknownWeight(name, tensors, source.label),
    readWeightChunks: (ref, chunkBytes) => readWeightChunks(source, ref, chunkBytes),
  };
}

async function refuseAdapterFolder(source: FileSource): Promise<void> {
  if ((await source.size('config.json')) !== null || (await source.size('adapter_config.json')) === null) return;
  throw fileFault('not-a-model', {
    doing: `opening the checkpoint ${source.label}`,
    found: 'adapter_config.json and no config.json: a LoRA adapter',
    wanted: 'a model',
    remedy: 'Give this folder as the adapter, and the base model as the model.',
  });
}

function checkNames(
  expected: ReadonlyMap<string, number[]>,
  found: ReadonlyMap<string, TensorRef>,
  arch: Architecture,
  label: string,
): void {
  const missing = [...expected.keys()].filter((name) => !found.has(name));
  const extra = [...found.keys()].filter((name) => !expected.has(name));
  if (missing.length === 0 && extra.length === 0) return;
  const parts = [];
  if (missing.length > 0) parts.push(`${missing.length} missing (${sampleNames(missing)})`);
  if (extra.length > 0) {
    const at = extra.slice(0, 3).map((name) => `${name} in ${found.get(name)!.file}`);
    parts.push(`${extra.length} unexpected (${sampleNames(at)}${extra.length > 3 ? ' and more' : ''})`);
  }
  const onlyHead = missing.length === 1 && missing[0] === OUTPUT_HEAD && extra.length === 0;
  throw fileFault(missing.length > 0 ? 'missing-tensor' : 'extra-tensor', {
    doing: `checking the tensors of ${label}`,
    found: `${found.size} tensors: ${parts.join(', ')}`,
    wanted: `the ${expected.size} tensors of a ${arch.modelType} model with ${arch.layers} layers`,
    remedy: onlyHead
      ? 'config.json says tie_word_embeddings false; set it to true only if the publisher says so.'
      : 'Check that config.json belongs to these weights, or download the checkpoint again.',
  });
}

function checkShapes(
  expected: ReadonlyMap<string, number[]>,
  found: ReadonlyMap<string, TensorRef>,
  label: string,
): void {
  for (const [name, shape] of expected) {
    const ref = found.get(name)!;
    const doing = `checking ${label}/${ref.file}, tensor ${name}`;
    if (ref.shape.length !== shape.length || ref.shape.some((extent, i) => extent !== shape[i])) {
      throw fileFault('wrong-shape', {
        doing,
        found: `shape ${showValue(ref.shape)}`,
        wanted: `${showValue(shape)}, as config.json says`,
        remedy: 'Check that config.json belongs to these weights.',
      });
    }
    if (ref.dtype !== 'BF16' && ref.dtype !== 'F16' && ref.dtype !== 'F32') {
      throw fileFault('wrong-dtype', {
        doing,
        found: `dtype ${ref.dtype}`,
        wanted: 'BF16, F16 or F32',
        remedy: 'Use the release of the checkpoint in one of these.',
      });
    }
  }
}

/** A tied model may store its head a second time, but only with the same bits. */
async function compareTiedHead(source: FileSource, found: ReadonlyMap<string, TensorRef>, head: TensorRef) {
  const embedding = found.get(EMBEDDING);
  if (!embedding) return;
  let differs = embedding.dtype !== head.dtype || embedding.lengthBytes !== head.lengthBytes;
  for (let at = 0; !differs && at < head.lengthBytes; at += COMPARE_BYTES) {
    const length = Math.min(COMPARE_BYTES, head.lengthBytes - at);
    const one = await readTensorRange(source, embedding, at, length);
    const other = await readTensorRange(source, head, at, length);
    differs = one.some((byte, i) => byte !== other[i]);
  }
  if (!differs) return;
  throw fileFault('contradictory-head', {
    doing: `checking ${source.label}/${head.file}, tensor ${OUTPUT_HEAD}`,
    found: `a head that differs from ${EMBEDDING} (${head.dtype} and ${embedding.dtype})`,
    wanted: 'no head or an equal one, as config.json says tie_word_embeddings true',
    remedy: 'If the model was trained with a head of its own, set tie_word_embeddings to false.',
  });
}

function unknownWeight(name: string, tensors: ReadonlyMap<string, TensorRef>, label: string): never {
  const near = nearestName(name, tensors.keys());
  throw fileFault('unknown-tensor', {
    doing: `looking for a weight of ${label}`,
    found: `no tensor ${name}`,
    wanted: `one of its ${tensors.size} tensors`,
    remedy: near ? `Did you mean ${near}?` : 'This is a fault of the caller; report it.',
  });
}
