// Public bug cases F4, F6 and F7: missing and stray shards, a tied output head, files of 2 GiB and more.
import { mkdtempSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memorySource } from '../../src/model/file-source.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { openSafetensors, readTensor, readTensorRange } from '../../src/model/safetensors.ts';
import { layoutSafetensors, type TensorBytes } from '../../src/model/safetensors-write.ts';
import { readWeightChunks } from '../../src/model/weight-chunks.ts';
import {
  editTensors,
  type Files,
  faultOf,
  goldenFiles,
  jsonBytes,
  jsonOf,
  patchJson,
  rawSafetensors,
  shard,
  tensorsOf,
} from '../support/checkpoint-files.ts';

const INDEX = 'model.safetensors.index.json';
const [first, second] = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'] as const;
const tied = goldenFiles('tiny-qwen3-tied');
const untied = goldenFiles('tiny-qwen3-untied');
const openFiles = (files: Files) => openModelFiles(memorySource('m', files));
const fault = (files: Files) => faultOf(() => openFiles(files));

describe('F4: shards that are absent, stray or damaged', () => {
  let sharded: Files;
  beforeAll(async () => {
    sharded = await shard(tied, 2);
  });
  const editMap = (edit: (map: Record<string, string>) => Record<string, string>): Files => {
    const index = jsonOf(sharded, INDEX) as { weight_map: Record<string, string> };
    return { ...sharded, [INDEX]: jsonBytes({ ...index, weight_map: edit(index.weight_map) }) };
  };

  it('refuses a missing shard, with the tensors that it should hold', async () => {
    const { [second]: _, ...rest } = sharded;
    expect(await fault(rest)).toMatchInlineSnapshot(
      `"[missing-shard] reading m/model.safetensors.index.json: found no file model-00002-of-00002.safetensors, which should hold 18 tensors (model.layers.1.self_attn.k_norm.weight, model.layers.1.self_attn.k_proj.weight, model.layers.1.self_attn.o_proj.weight and 15 more); wanted all 2 shards in the folder. Download the missing shard."`,
    );
  });

  it('reads only indexed files, whatever else lies beside them', async () => {
    const plain = await openFiles(sharded);
    const stray = {
      'consolidated.safetensors': tied['model.safetensors']!,
      'model.safetensors': rawSafetensors('{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', new Uint8Array(1)),
    };
    const files = await openFiles({ ...sharded, ...stray });
    expect([...files.tensors]).toEqual([...plain.tensors]);
    expect(files.notes).toEqual([
      `m/consolidated.safetensors is not named by ${INDEX} and was not read`,
      `m/model.safetensors is not named by ${INDEX} and was not read`,
    ]);
  });

  it('refuses a truncated last shard', async () => {
    const cut = sharded[second]!.slice(0, -1000);
    expect(await fault({ ...sharded, [second]: cut })).toMatch(
      /\[truncated-file\] reading m\/model-00002-of-00002.safetensors: found \d+ bytes of tensor data; wanted \d+/,
    );
  });

  it('refuses a header length larger than the shard, overlapping offsets and an F8 dtype, naming the shard', async () => {
    const shards: [Uint8Array<ArrayBuffer>, RegExp][] = [
      [rawSafetensors('{}', new Uint8Array(4), 5000), /\[bad-header-length\].*model-00002-of-00002/],
      [
        rawSafetensors(
          '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}',
          new Uint8Array(4),
        ),
        /\[overlapping-offsets\].*model-00002-of-00002.*tensor b/,
      ],
      [
        rawSafetensors('{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}', new Uint8Array(4)),
        /\[unsupported-dtype\].*model-00002-of-00002.*tensor a: found dtype F8_E4M3/,
      ],
    ];
    for (const [bytes, text] of shards) expect(await fault({ ...sharded, [second]: bytes })).toMatch(text);
  });

  it('refuses an index that contradicts the shards, whichever way', async () => {
    const moved = editMap((map) => ({ ...map, 'model.norm.weight': first }));
    expect(await fault(moved)).toMatch(/model-00001-of-00002.safetensors: found no tensor model.norm.weight/);
    const { 'model.norm.weight': _, ...unlisted } = (jsonOf(sharded, INDEX) as { weight_map: Record<string, string> })
      .weight_map;
    expect(await fault(editMap(() => unlisted))).toMatch(
      /\[contradictory-index\].*tensor model.norm.weight: found a tensor that the index does not list/,
    );
    const ghost = editMap((map) => ({ ...map, 'model.layers.9.x': second }));
    expect(await fault(ghost)).toMatch(/model-00002-of-00002.safetensors: found no tensor model.layers.9.x/);
  });

  it('refuses a tensor that two shards hold', async () => {
    const copy = (await tensorsOf(sharded, second)).find(({ name }) => name === 'model.norm.weight')!;
    const twice = await editTensors(sharded, first, (tensors) => [...tensors, copy]);
    expect(await fault(twice)).toMatch(
      /\[duplicate-tensor\] reading m\/model-00001-of-00002.safetensors, tensor model.norm.weight.*places it in model-00002/,
    );
  });

  it('refuses an index that names a path, has a key twice or is cut', async () => {
    expect(await fault(editMap((map) => ({ ...map, 'model.norm.weight': '../other/x.safetensors' })))).toMatch(
      /\[missing-shard\].*\.\.\/other/,
    );
    const text = new TextDecoder().decode(sharded[INDEX]!);
    const doubled = text.replace('"weight_map":{', `"weight_map":{"model.norm.weight":"${first}",`);
    expect(await fault({ ...sharded, [INDEX]: jsonBytes(doubled) })).toMatch(
      /\[duplicate-key\].*"model.norm.weight" twice/,
    );
    expect(await fault({ ...sharded, [INDEX]: sharded[INDEX]!.slice(0, -20) })).toMatch(
      /\[bad-json\] reading m\/model.safetensors.index.json/,
    );
  });

  it('notes a total_size that the shards do not add up to', async () => {
    const index = jsonOf(sharded, INDEX);
    const files = await openFiles({ ...sharded, [INDEX]: jsonBytes({ ...index, metadata: { total_size: 1 } }) });
    expect(files.notes[0]).toMatch(/total_size 1, its shards hold \d+ bytes/);
  });
});

describe('F6: a tied output head', () => {
  const withHead = (edit: (bytes: Uint8Array) => Uint8Array) =>
    editTensors(tied, 'model.safetensors', (tensors) => {
      const embedding = tensors.find(({ name }) => name === 'model.embed_tokens.weight')!;
      return [...tensors, { ...embedding, name: 'lm_head.weight', bytes: edit(embedding.bytes.slice()) }];
    });

  it('uses the embedding where a tied model has no head', async () => {
    const files = await openFiles(tied);
    expect(files.architecture.tied).toBe(true);
    expect(files.tensors.has('lm_head.weight')).toBe(false);
    expect(files.notes).toEqual([]);
  });

  it('accepts a tied head that is stored twice with the same bits, and says so', async () => {
    const files = await openFiles(await withHead((bytes) => bytes));
    expect(files.tensors.has('lm_head.weight')).toBe(false);
    expect(files.notes).toEqual([
      'lm_head.weight equals model.embed_tokens.weight bit for bit; the model is tied and uses the embedding',
    ]);
  });

  it('refuses a tied head that differs in its last bit, or in shape', async () => {
    const files = await withHead((bytes) => {
      bytes[bytes.length - 2]! ^= 1;
      return bytes;
    });
    expect(await fault(files)).toMatchInlineSnapshot(
      `"[contradictory-head] checking m/model.safetensors, tensor lm_head.weight: found a head that differs from model.embed_tokens.weight (BF16 and BF16); wanted no head or an equal one, as config.json says tie_word_embeddings true. If the model was trained with a head of its own, set tie_word_embeddings to false."`,
    );
    const flat = (t: TensorBytes): TensorBytes => (t.name === 'lm_head.weight' ? { ...t, shape: [64, 320] } : t);
    expect(await fault(await editTensors(files, 'model.safetensors', (t) => t.map(flat)))).toMatch(
      /\[wrong-shape\].*lm_head.weight: found shape \[64,320\]/,
    );
  });

  it('refuses an untied model without a head, and never ties it silently', async () => {
    const files = await editTensors(untied, 'model.safetensors', (t) =>
      t.filter(({ name }) => name !== 'lm_head.weight'),
    );
    expect(await fault(files)).toMatch(/\[missing-tensor\].*1 missing \(lm_head.weight\).*tie_word_embeddings false/);
    expect((await openFiles(patchJson(files, 'config.json', { tie_word_embeddings: true }))).architecture.tied).toBe(
      true,
    );
  });

  it('uses the head of an untied model, which may differ from the embedding', async () => {
    expect((await openFiles(untied)).weight('lm_head.weight').shape).toEqual([320, 64]);
  });
});

describe('F7: files of 2 GiB and more', () => {
  let folder = '';
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'shaderl-large-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const pattern = (length: number) => Uint8Array.from({ length }, (_, i) => (i * 37 + 11) & 0xff);

  /** A file whose tensors are holes but for `tail`, a bf16 tensor [8, 64] that follows `fillerBytes` of another one. */
  async function writeSparse(name: string, fillerBytes: number, restBytes: number): Promise<Uint8Array> {
    const tail = pattern(1024);
    const specs = [
      { name: 'a_filler', dtype: 'BF16', shape: [fillerBytes / 2] },
      { name: 'b_tail', dtype: 'BF16', shape: [8, 64] },
      { name: 'c_rest', dtype: 'BF16', shape: [restBytes / 2] },
    ] as const;
    const { head, totalBytes } = layoutSafetensors(specs, { format: 'pt' });
    const handle = await open(join(folder, name), 'w');
    try {
      await handle.truncate(totalBytes);
      await handle.write(head, 0, head.length, 0);
      await handle.write(tail, 0, tail.length, head.length + fillerBytes);
    } finally {
      await handle.close();
    }
    return tail;
  }

  async function readBack(name: string) {
    const source = folderSource(folder);
    const { tensors, sizeBytes } = await openSafetensors(source, name);
    const ref = tensors.get('b_tail')!;
    const chunks = [];
    for await (const { values } of readWeightChunks(source, ref, 300)) chunks.push(Buffer.from(values.buffer));
    return {
      ref,
      sizeBytes,
      whole: await readTensor(source, ref),
      middle: await readTensorRange(source, ref, 500, 24),
      chunked: Buffer.concat(chunks),
    };
  }

  it('reads a tensor at the end of a file of 2 GiB + 4 KiB', async () => {
    const tail = await writeSparse('two.safetensors', 2 ** 31 + 2048, 0);
    const { ref, sizeBytes, whole, middle, chunked } = await readBack('two.safetensors');
    expect(ref.offsetBytes).toBeGreaterThan(2 ** 31);
    expect(sizeBytes).toBeGreaterThan(2 ** 31 + 3000);
    expect(Buffer.compare(whole, tail)).toBe(0);
    expect(Buffer.compare(middle, tail.subarray(500, 524))).toBe(0);
    expect(Buffer.compare(chunked, tail)).toBe(0);
  });

  it('reads a tensor that lies across the 2^32 mark of a file of 5 GiB', async () => {
    // The header takes less than 512 bytes, so that the tensor starts before the mark and ends after it.
    const tail = await writeSparse('five.safetensors', 2 ** 32 - 768, 2 ** 30);
    const { ref, sizeBytes, whole, middle, chunked } = await readBack('five.safetensors');
    expect(ref.offsetBytes).toBeLessThan(2 ** 32);
    expect(ref.offsetBytes + ref.lengthBytes).toBeGreaterThan(2 ** 32);
    expect(sizeBytes).toBeGreaterThan(5 * 2 ** 30);
    expect(Buffer.compare(whole, tail)).toBe(0);
    expect(Buffer.compare(middle, tail.subarray(500, 524))).toBe(0);
    expect(Buffer.compare(chunked, tail)).toBe(0);
  });

  it('refuses the same file cut short by one byte', async () => {
    await writeSparse('cut.safetensors', 2 ** 31 + 2048, 0);
    const handle = await open(join(folder, 'cut.safetensors'), 'r+');
    await handle.truncate((await handle.stat()).size - 1);
    await handle.close();
    expect(await faultOf(() => openSafetensors(folderSource(folder), 'cut.safetensors'))).toMatch(
      /\[truncated-file\].*cut.safetensors/,
    );
  });

  it('reads a header of several MiB whole', async () => {
    const specs = Array.from(
      { length: 30_000 },
      (_, i) => ({ name: `model.layers.${i}.some_long_name.weight`, dtype: 'U8', shape: [1] }) as const,
    );
    const { head, totalBytes } = layoutSafetensors(specs, null);
    expect(head.length).toBeGreaterThan(2 * 2 ** 20);
    const file = new Uint8Array(totalBytes);
    file.set(head, 0);
    const { tensors } = await openSafetensors(memorySource('m', { f: file }), 'f');
    expect(tensors.size).toBe(30_000);
  });
});
