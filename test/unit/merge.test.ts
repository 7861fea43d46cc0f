// Merging an adapter: against PEFT's own merge, and the folder on disk.
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mergeAdapter } from '../../src/export/merge.ts';
import { mergeToFolder } from '../../src/export/merge-node.ts';
import { decodeToF32, f32ToBf16, f32ToF16 } from '../../src/lib/half.ts';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { type Adapter, initAdapter } from '../../src/model/lora.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { openSafetensors, readTensor } from '../../src/model/safetensors.ts';
import { bytesOf, type TensorBytes } from '../../src/model/safetensors-write.ts';
import { treeSha256 } from '../../src/model/tree-hash-node.ts';
import { editTensors, type Files, faultOf, goldenFiles, shard, tensorsOf } from '../support/checkpoint-files.ts';
import { goldenPath, readGolden } from '../support/golden.ts';

const tied = goldenFiles('tiny-qwen3-tied');
const weights = 'model.safetensors';
const openTied = (files: Files = tied) => openModelFiles(memorySource('base', files));

/** The merged files in memory, and the audit. */
async function merge(files: Files, adapter: Adapter) {
  const out: Files = {};
  const put = async (name: string, chunks: AsyncIterable<Uint8Array>) => {
    const parts = [];
    for await (const chunk of chunks) parts.push(chunk.slice());
    out[name] = new Uint8Array(Buffer.concat(parts));
  };
  return { audit: await mergeAdapter(await openTied(files), adapter, { put }), out };
}

describe('mergeAdapter', () => {
  let adapter: Adapter;
  beforeAll(async () => {
    adapter = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), (await openTied()).architecture);
  });

  it('gives the file that PEFT’s merge_and_unload saves, but for three elements that f32 summation turns', async () => {
    const { out } = await merge(tied, adapter);
    // PEFT 0.21 sums over the rank in f32, we in f64; these sums lie within one f32 unit of a bf16 midpoint.
    const theirs: [string, number, number, number][] = [
      ['model.layers.1.mlp.down_proj.weight', 0 * 160 + 97, -6.616115570068359e-6, -6.645917892456055e-6],
      ['model.layers.1.mlp.gate_proj.weight', 87 * 64 + 30, -1.955777406692505e-7, -1.9650906324386597e-7],
      ['model.layers.2.self_attn.o_proj.weight', 19 * 128 + 6, 0.005950927734375, 0.00592041015625],
    ];
    const { tensors } = await openSafetensors(memorySource('merged', out), weights);
    const view = new DataView(out[weights]!.buffer);
    for (const [name, element, ours, peft] of theirs) {
      const at = tensors.get(name)!.offsetBytes + 2 * element;
      expect(view.getUint16(at, true)).toBe(f32ToBf16(ours));
      view.setUint16(at, f32ToBf16(peft), true);
    }
    expect(createHash('sha256').update(out[weights]!).digest('hex')).toBe(
      '8221afc6d228f544b7a9267ba588ff12228cf59acf6c81bf2486d059ecd1cafc',
    );
  });

  it('reports what an independent computation in f64 finds', async () => {
    const { out, audit } = await merge(tied, adapter);
    const [base, lora] = [
      readGolden(`tiny-qwen3-tied/${weights}`),
      readGolden('tiny-qwen3-tied-lora/adapter_model.safetensors'),
    ];
    const merged = new Map((await tensorsOf(out, weights)).map((t) => [t.name, decodeToF32(t.bytes, 'BF16')]));
    const total = { elements: 0, changed: 0, error: 0, update: 0 };
    for (const [name, figures] of Object.entries(audit.tensors)) {
      const stem = `base_model.model.${name.slice(0, -'.weight'.length)}`;
      const [a, b] = [lora.tensors.get(`${stem}.lora_A.weight`)!, lora.tensors.get(`${stem}.lora_B.weight`)!];
      const [before, after, columns] = [base.tensors.get(name)!.data, merged.get(name)!, a.shape[1]!];
      const own = { changed: 0, lost: 0, error: 0, update: 0 };
      for (let i = 0; i < before.length; i++) {
        const [row, column] = [Math.floor(i / columns), i % columns];
        let delta = 0;
        for (let r = 0; r < 4; r++) delta += 2 * b.data[row * 4 + r]! * a.data[r * columns + column]!;
        if (after[i] !== before[i]) own.changed += 1;
        else own.lost = Math.max(own.lost, Math.abs(delta));
        own.error += (after[i]! - before[i]! - delta) ** 2;
        own.update += delta ** 2;
      }
      expect(figures.elements).toBe(before.length);
      expect(figures.changedShare).toBe(own.changed / before.length);
      expect(figures.largestLostUpdate).toBeCloseTo(own.lost, 9);
      expect(figures.relativeDeltaError).toBeCloseTo(Math.sqrt(own.error / own.update), 6);
      total.elements += before.length;
      total.changed += own.changed;
      total.error += own.error;
      total.update += own.update;
    }
    expect(Object.keys(audit.tensors)).toHaveLength(21);
    expect(audit.totals.changedShare).toBe(total.changed / total.elements);
    expect(audit.totals.relativeDeltaError).toBeCloseTo(Math.sqrt(total.error / total.update), 6);
    expect(audit).toMatchObject({ scale: 2, rank: 4, verdict: 'equivalent' });
  });

  it('copies what is not adapted bit for bit, and everything where B is zero', async () => {
    const zero = initAdapter((await openTied()).architecture, { ...adapter.config, targets: ['o_proj'] }, 1);
    const { out, audit } = await merge(tied, zero);
    expect(Buffer.compare(out[weights]!, tied[weights]!)).toBe(0);
    expect(Buffer.compare(out['config.json']!, tied['config.json']!)).toBe(0);
    expect(audit.totals).toEqual({
      elements: 3 * 64 * 128,
      changedShare: 0,
      largestLostUpdate: 0,
      relativeDeltaError: 0,
    });
  });

  it('gives one file for shards and for a single file alike', async () => {
    const [one, many] = [await merge(tied, adapter), await merge(await shard(tied, 4), adapter)];
    expect(Buffer.compare(one.out[weights]!, many.out[weights]!)).toBe(0);
    expect(Object.keys(many.out)).toEqual(['config.json', 'generation_config.json', weights]);
  });

  it.each(['F32', 'F16'] as const)(
    'keeps an %s checkpoint in its own dtype, with a smaller error than bf16',
    async (dtype) => {
      const widen = (t: TensorBytes): TensorBytes => {
        const values = decodeToF32(t.bytes, 'BF16');
        return { ...t, dtype, bytes: bytesOf(dtype === 'F32' ? values : Uint16Array.from(values, f32ToF16)) };
      };
      const files = await editTensors(tied, weights, (t) => t.map(widen));
      const { out, audit } = await merge(files, adapter);
      expect((await tensorsOf(out, weights)).every((t) => t.dtype === dtype)).toBe(true);
      expect(audit.totals.relativeDeltaError).toBeLessThan(dtype === 'F32' ? 1e-6 : 3e-3);
      expect(audit.totals.relativeDeltaError).toBeGreaterThan(0);
    },
  );

  it('refuses an adapter of another model and a sum that the dtype cannot hold', async () => {
    const llama = await openModelFiles(memorySource('llama', goldenFiles('tiny-llama-tied')));
    const put = async () => expect.fail('nothing may be written');
    expect(await faultOf(() => mergeAdapter(llama, adapter, { put }))).toMatch(/\[bad-adapter\]/);
    const huge = { ...adapter, config: { ...adapter.config, alpha: 1e41 } };
    expect(await faultOf(() => merge(tied, huge))).toMatch(/\[not-finite\] merging model.layers.\d/);
  });
});

describe('mergeToFolder', () => {
  let parent = '';
  beforeAll(() => {
    parent = mkdtempSync(join(tmpdir(), 'shaderl-merge-'));
  });
  afterAll(() => rmSync(parent, { recursive: true, force: true }));

  it('writes a folder that opens as a model, with an audit that carries its tree hash', async () => {
    const files = await openTied();
    const adapter = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
    const output = join(parent, 'deep', 'merged');
    const written = await mergeToFolder(files, adapter, output);
    const merged = await openModelFiles(folderSource(output));
    expect(merged.architecture).toEqual(files.architecture);
    const names = ['config.json', 'generation_config.json', weights];
    expect(readdirSync(output).sort()).toEqual([...names.slice(0, 2), 'merge-audit.json', weights].sort());
    expect(JSON.parse(readFileSync(join(output, 'merge-audit.json'), 'utf8'))).toEqual(written);
    expect(written.treeSha256).toBe(await treeSha256(folderSource(output), names));
    expect(readdirSync(join(parent, 'deep'))).toEqual(['merged']);
    const norm = 'model.norm.weight';
    const [one, other] = [
      await readTensor(files.source, files.weight(norm)),
      await readTensor(merged.source, merged.weight(norm)),
    ];
    expect(one).toEqual(other);
    expect(await faultOf(() => mergeToFolder(files, adapter, output))).toMatch(
      /\[output-exists\].*merged.*remove this one/,
    );
  });

  it('leaves nothing behind when it fails half way, and does not touch what is there', async () => {
    const files = await openTied();
    const adapter = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
    const huge = { ...adapter, config: { ...adapter.config, alpha: 1e41 } };
    const output = join(parent, 'failed');
    expect(await faultOf(() => mergeToFolder(files, huge, output))).toMatch(/\[not-finite\]/);
    expect(existsSync(output)).toBe(false);
    expect(readdirSync(parent).filter((name) => name.includes('failed'))).toEqual([]);
    writeFileSync(output, 'mine');
    expect(await faultOf(() => mergeToFolder(files, adapter, output))).toMatch(/\[output-exists\]/);
    expect(readFileSync(output, 'utf8')).toBe('mine');
  });
});
