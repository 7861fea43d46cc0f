// Golden checkpoints as files in memory, and ways to spoil them, for tests that open checkpoints and adapters.
// Not a double of the loader. Invariant: an unspoilt set has the golden's own bytes.
import { readdirSync, readFileSync } from 'node:fs';
import { expect } from 'vitest';
import { ModelFileError } from '../../src/lib/errors.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { openSafetensors, readTensor } from '../../src/model/safetensors.ts';
import { encodeSafetensors, type TensorBytes } from '../../src/model/safetensors-write.ts';
import { goldenPath } from './golden.ts';

export type Files = Record<string, Uint8Array<ArrayBuffer>>;

/** All files of a folder of test/golden. */
export function goldenFiles(folder: string): Files {
  const path = goldenPath(folder);
  return Object.fromEntries(readdirSync(path).map((name) => [name, new Uint8Array(readFileSync(`${path}/${name}`))]));
}

export function jsonOf(files: Files, name: string): Record<string, unknown> {
  return JSON.parse(new TextDecoder().decode(files[name]!));
}

export function jsonBytes(value: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(typeof value === 'string' ? value : JSON.stringify(value));
}

/** The same files with some keys of a JSON file set; a key set to undefined is dropped. */
export function patchJson(files: Files, name: string, patch: Record<string, unknown>): Files {
  return { ...files, [name]: jsonBytes({ ...jsonOf(files, name), ...patch }) };
}

/** The tensors of a safetensors file in memory. */
export async function tensorsOf(files: Files, name: string): Promise<TensorBytes[]> {
  const source = memorySource('memory', files);
  const { tensors } = await openSafetensors(source, name);
  const list: TensorBytes[] = [];
  for (const ref of tensors.values()) {
    list.push({ name: ref.name, dtype: ref.dtype, shape: ref.shape, bytes: await readTensor(source, ref) });
  }
  return list;
}

/** The same files with the tensors of one safetensors file edited. */
export async function editTensors(
  files: Files,
  name: string,
  edit: (tensors: TensorBytes[]) => TensorBytes[],
): Promise<Files> {
  return { ...files, [name]: encodeSafetensors(edit(await tensorsOf(files, name)), { format: 'pt' }) };
}

/** A checkpoint cut into shards with an index, as transformers names them. */
export async function shard(files: Files, count: number): Promise<Files> {
  const { 'model.safetensors': _, ...rest } = files;
  const tensors = await tensorsOf(files, 'model.safetensors');
  const weightMap: Record<string, string> = {};
  const shards: Files = {};
  for (let i = 0; i < count; i++) {
    const file = `model-${String(i + 1).padStart(5, '0')}-of-${String(count).padStart(5, '0')}.safetensors`;
    const part = tensors.slice(
      Math.floor((i * tensors.length) / count),
      Math.floor(((i + 1) * tensors.length) / count),
    );
    for (const { name } of part) weightMap[name] = file;
    shards[file] = encodeSafetensors(part, { format: 'pt' });
  }
  const total = tensors.reduce((sum, { bytes }) => sum + bytes.length, 0);
  const index = { metadata: { total_size: total }, weight_map: weightMap };
  return { ...rest, ...shards, 'model.safetensors.index.json': jsonBytes(index) };
}

/** A safetensors file with this header text and data, right or wrong. */
export function rawSafetensors(
  header: string,
  data: Uint8Array,
  headerLength?: number | bigint,
): Uint8Array<ArrayBuffer> {
  const json = new TextEncoder().encode(header);
  const file = new Uint8Array(8 + json.length + data.length);
  new DataView(file.buffer).setBigUint64(0, BigInt(headerLength ?? json.length), true);
  file.set(json, 8);
  file.set(data, 8 + json.length);
  return file;
}

/** `[code] message` of the ModelFileError that `action` must throw. */
export async function faultOf(action: () => unknown): Promise<string> {
  try {
    await action();
  } catch (error) {
    expect(error).toBeInstanceOf(ModelFileError);
    const { code, message } = error as ModelFileError;
    return `[${code}] ${message}`;
  }
  throw new Error('expected a ModelFileError, but nothing was thrown');
}
