// Opening checkpoints: the golden ones as they are, in shards, in other dtypes, and spoilt in each way that is refused.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bf16ToF32, decodeToF32, f32ToF16 } from '../../src/lib/half.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { type ModelFiles, openModelFiles } from '../../src/model/model-files.ts';
import { readTensor } from '../../src/model/safetensors.ts';
import { bytesOf, type TensorBytes } from '../../src/model/safetensors-write.ts';
import { treeSha256 } from '../../src/model/tree-hash-node.ts';
import { editTensors, type Files, faultOf, goldenFiles, patchJson, shard } from '../support/checkpoint-files.ts';
import { goldenPath } from '../support/golden.ts';

const weights = 'model.safetensors';
const tied = goldenFiles('tiny-qwen3-tied');
const open = (files: Files) => openModelFiles(memorySource('m', files));
const fault = (files: Files) => faultOf(() => open(files));
const drop = (name: string) => (tensors: TensorBytes[]) => tensors.filter((tensor) => tensor.name !== name);
const qNorm = 'model.layers.1.self_attn.q_norm.weight';

async function collect(files: ModelFiles, name: string, chunkBytes: number) {
  const chunks = [];
  for await (const chunk of files.readWeightChunks(files.weight(name), chunkBytes)) chunks.push(chunk);
  return chunks;
}

describe('openModelFiles', () => {
  it.each([
    ['tiny-qwen3-tied', 35],
    ['tiny-qwen3-untied', 36],
    ['tiny-llama-tied', 29],
  ])('opens %s from a folder', async (name, count) => {
    const files = await openModelFiles(folderSource(goldenPath(name)));
    expect(files.tensors.size).toBe(count);
    expect(files.notes).toEqual([]);
    expect(files.architecture.tied).toBe(name.endsWith('-tied'));
    expect([...files.tensors.keys()][0]).toBe('model.embed_tokens.weight');
  });

  it('opens a sharded checkpoint with the same tensors as the single file', async () => {
    const [one, many] = [await open(tied), await open(await shard(tied, 3))];
    expect([...many.tensors.keys()]).toEqual([...one.tensors.keys()]);
    expect(new Set([...many.tensors.values()].map((ref) => ref.file)).size).toBe(3);
    for (const [name, ref] of one.tensors) {
      const other = await readTensor(many.source, many.weight(name));
      expect(Buffer.compare(await readTensor(one.source, ref), other)).toBe(0);
    }
    expect(many.notes).toEqual([]);
  });

  it('opens a checkpoint without generation_config.json', async () => {
    const { 'generation_config.json': _, ...rest } = tied;
    expect((await open(rest)).architecture.eosTokenIds).toEqual([3]);
  });

  it('passes over the rope buffers of old checkpoints and says so', async () => {
    const buffer = {
      name: 'model.layers.0.self_attn.rotary_emb.inv_freq',
      dtype: 'F32',
      shape: [16],
      bytes: new Uint8Array(64),
    } as const;
    const files = await open(await editTensors(tied, weights, (tensors) => [...tensors, buffer]));
    expect(files.tensors.size).toBe(35);
    expect(files.notes).toEqual([`${buffer.name} is recomputed from config.json and was not read`]);
  });

  it('refuses a missing tensor, an extra one, both at once, with names from each side', async () => {
    expect(await fault(await editTensors(tied, weights, drop(qNorm)))).toMatchInlineSnapshot(
      `"[missing-tensor] checking the tensors of m: found 34 tensors: 1 missing (model.layers.1.self_attn.q_norm.weight); wanted the 35 tensors of a qwen3 model with 3 layers. Check that config.json belongs to these weights, or download the checkpoint again."`,
    );
    const bias = {
      name: 'model.layers.0.self_attn.q_proj.bias',
      dtype: 'BF16',
      shape: [128],
      bytes: new Uint8Array(256),
    } as const;
    expect(await fault(await editTensors(tied, weights, (t) => [...t, bias]))).toMatch(
      /\[extra-tensor\].*1 unexpected \(model.layers.0.self_attn.q_proj.bias in model.safetensors\)/,
    );
    const both = await fault(await editTensors(tied, weights, (t) => [...drop(qNorm)(t), bias]));
    expect(both).toMatch(/1 missing \(model.layers.1.self_attn.q_norm.weight\), 1 unexpected/);
  });

  it('refuses a misshapen tensor and a dtype that is no float, with file and tensor', async () => {
    const reshape = (t: TensorBytes): TensorBytes => (t.name === qNorm ? { ...t, shape: [1, 32] } : t);
    expect(await fault(await editTensors(tied, weights, (t) => t.map(reshape)))).toMatch(
      /m\/model.safetensors, tensor model.layers.1.self_attn.q_norm.weight: found shape \[1,32\]; wanted \[32\]/,
    );
    const retype = (t: TensorBytes): TensorBytes => (t.name === qNorm ? { ...t, dtype: 'I16' } : t);
    expect(await fault(await editTensors(tied, weights, (t) => t.map(retype)))).toMatch(
      /q_norm.weight: found dtype I16; wanted BF16, F16 or F32/,
    );
    const f64 = (t: TensorBytes): TensorBytes =>
      t.name === qNorm ? { ...t, dtype: 'F64', bytes: new Uint8Array(256) } : t;
    expect(await fault(await editTensors(tied, weights, (t) => t.map(f64)))).toMatch(/found dtype F64/);
  });

  it('refuses a head_dim, a layer count or a vocabulary that the tensors contradict', async () => {
    expect(await fault(patchJson(tied, 'config.json', { head_dim: 16 }))).toMatch(
      /\[wrong-shape\].*found shape \[32\]; wanted \[16\]/,
    );
    expect(await fault(patchJson(tied, 'config.json', { num_hidden_layers: 2, layer_types: null }))).toMatch(
      /\[extra-tensor\].*11 unexpected/,
    );
    expect(await fault(patchJson(tied, 'config.json', { vocab_size: 321 }))).toMatch(
      /embed_tokens.weight: found shape \[320,64\]; wanted \[321,64\]/,
    );
  });

  it('refuses an adapter folder, a folder without weights, pickled weights, and a path that is no folder', async () => {
    expect(await fault(goldenFiles('tiny-qwen3-tied-lora'))).toMatch(/\[not-a-model\].*a LoRA adapter/);
    const { [weights]: _, ...rest } = tied;
    expect(await fault(rest)).toMatch(
      /\[missing-file\].*config.json.*wanted model.safetensors or model.safetensors.index.json/,
    );
    expect(await fault({ ...rest, 'pytorch_model.bin': new Uint8Array(1) })).toMatch(
      /Convert pytorch_model.bin to safetensors/,
    );
    expect(await faultOf(() => folderSource('/no/such/folder'))).toMatch(
      /\[missing-folder\].*\/no\/such\/folder: found nothing/,
    );
    expect(await faultOf(() => folderSource(goldenPath('versions.json')))).toMatch(/found a file; wanted a folder/);
  });

  it('names the nearest tensor when asked for one that is not there', async () => {
    const files = await open(tied);
    expect(await faultOf(() => files.weight('model.layers.0.self_attn.q_prj.weight'))).toMatch(
      /Did you mean model.layers.0.self_attn.q_proj.weight/,
    );
  });
});

describe('readWeightChunks', () => {
  const widen =
    (dtype: 'F32' | 'F16') =>
    (t: TensorBytes): TensorBytes => {
      const values = decodeToF32(t.bytes, 'BF16');
      return { ...t, dtype, bytes: bytesOf(dtype === 'F32' ? values : Uint16Array.from(values, f32ToF16)) };
    };

  it.each([2, 64, 130, 1000, 1 << 20])('gives BF16 verbatim in chunks of at most %d bytes', async (chunkBytes) => {
    const files = await open(tied);
    const name = 'model.layers.0.mlp.down_proj.weight';
    const chunks = await collect(files, name, chunkBytes);
    const bytes = Buffer.concat(chunks.map((chunk) => bytesOf(chunk.values)));
    expect(Buffer.compare(bytes, await readTensor(files.source, files.weight(name)))).toBe(0);
    let at = 0;
    for (const { offsetElements, storage, exactBf16, values } of chunks) {
      expect({ offsetElements, storage, exactBf16 }).toEqual({ offsetElements: at, storage: 'bf16', exactBf16: true });
      expect(at % 2).toBe(0);
      expect(values.byteLength).toBeLessThanOrEqual(Math.max(chunkBytes, 4));
      if (chunkBytes >= 320) expect(values.length % 160).toBe(0);
      at += values.length;
    }
  });

  it('starts every chunk at an even element where rows are odd', async () => {
    const odd = { hidden_size: 63, layer_types: null };
    const recut = (t: TensorBytes): TensorBytes => {
      const shape = t.shape.map((extent) => (extent === 64 ? 63 : extent));
      return { ...t, shape, bytes: t.bytes.slice(0, 2 * shape.reduce((a, b) => a * b, 1)) };
    };
    const cut = await editTensors(tied, weights, (t) =>
      t.map((one) =>
        /k_proj|v_proj/.test(one.name) ? { ...one, shape: [64, 63], bytes: one.bytes.slice(0, 8064) } : recut(one),
      ),
    );
    const files = await open(patchJson(cut, 'config.json', odd));
    for (const chunkBytes of [100, 126, 300, 1000]) {
      const chunks = await collect(files, 'model.embed_tokens.weight', chunkBytes);
      expect(chunks.every(({ offsetElements }) => offsetElements % 2 === 0)).toBe(true);
      expect(chunks.reduce((sum, { values }) => sum + values.length, 0)).toBe(320 * 63);
      expect(Math.max(...chunks.map(({ values }) => values.byteLength))).toBeLessThanOrEqual(chunkBytes);
    }
  });

  it.each(['F32', 'F16'] as const)('keeps the values of an %s checkpoint exactly, as f32', async (dtype) => {
    const files = await open(await editTensors(tied, weights, (t) => t.map(widen(dtype))));
    for (const name of ['model.norm.weight', 'model.layers.2.mlp.up_proj.weight']) {
      const chunks = await collect(files, name, 512);
      expect(chunks.every(({ storage, exactBf16 }) => storage === 'f32' && !exactBf16)).toBe(true);
      const stored = decodeToF32(await readTensor(files.source, files.weight(name)), dtype);
      expect(chunks.flatMap(({ values }) => [...values])).toEqual([...stored]);
    }
  });
});

describe('folders on disk', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'shaderl-files-'));
    for (const [name, bytes] of Object.entries(tied)) writeFileSync(join(folder, `blob-${name}`), bytes);
    for (const name of Object.keys(tied)) symlinkSync(join(folder, `blob-${name}`), join(folder, name));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('follows links to files, as a Hugging Face cache has them', async () => {
    const files = await openModelFiles(folderSource(folder));
    const norm = await readTensor(files.source, files.weight('model.norm.weight'));
    expect(bf16ToF32(norm[0]! | (norm[1]! << 8))).toBeGreaterThan(0);
  });

  it.each(['../etc/passwd', '/etc/passwd', 'a//b', 'a/../../b', 'a\\b'])('refuses the name %s', async (name) => {
    expect(await faultOf(() => folderSource(folder).size(name))).toMatch(/\[bad-file-name\]/);
  });

  it('hashes a tree by names and bytes alone, in the documented form', async () => {
    const names = ['model.safetensors', 'config.json'];
    const sha = (data: Uint8Array | string) => createHash('sha256').update(data).digest('hex');
    const rows = [...names].sort().map((name) => `["${name}",${tied[name]!.length},"${sha(tied[name]!)}"]`);
    const expected = sha(`[${rows.join(',')}]`);
    expect(await treeSha256(folderSource(folder), names)).toBe(expected);
    expect(await treeSha256(memorySource('elsewhere', tied), [...names].reverse())).toBe(expected);
    expect(await treeSha256(memorySource('m', tied))).not.toBe(expected);
    expect(await faultOf(() => treeSha256(folderSource(folder), ['absent']))).toMatch(/\[missing-file\]/);
  });
});
