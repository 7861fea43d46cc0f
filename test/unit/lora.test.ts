// LoRA parameters in memory and PEFT's adapter files, against an adapter that PEFT 0.21 wrote.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { checkAdapter, encodeAdapter, loadAdapter } from '../../src/model/adapter-files.ts';
import { parseArchitecture } from '../../src/model/config.ts';
import { memorySource } from '../../src/model/file-source.ts';
import {
  adapterTensorNames,
  initAdapter,
  type LoraConfig,
  parameterCount,
  resolveTargets,
} from '../../src/model/lora.ts';
import { linearNames } from '../../src/model/tensor-names.ts';
import { adapterConfigText } from '../support/adapter-fixture.ts';
import { faultOf, goldenFiles, jsonOf, patchJson } from '../support/checkpoint-files.ts';
import { goldenPath } from '../support/golden.ts';

const golden = goldenFiles('tiny-qwen3-tied-lora');
const arch = parseArchitecture(jsonOf(goldenFiles('tiny-qwen3-tied'), 'config.json'), null, 'm');
const all: LoraConfig = { rank: 4, alpha: 8, useRslora: false, targets: resolveTargets('all-linear') };
const load = (files = golden) => loadAdapter(memorySource('adapter', files), arch);

describe('PEFT adapter files', () => {
  it('loads what PEFT wrote and writes the same safetensors file byte for byte', async () => {
    const adapter = await load();
    expect(adapter.config).toEqual(all);
    expect(adapter.notes).toEqual([]);
    expect(adapter.tensors.size).toBe(42);
    const written = encodeAdapter(adapter);
    const theirs = readFileSync(goldenPath('tiny-qwen3-tied-lora/adapter_model.safetensors'));
    expect(Buffer.compare(written['adapter_model.safetensors'], theirs)).toBe(0);
  });

  it('writes each field of adapter_config.json with the value that PEFT writes', async () => {
    const bytes = encodeAdapter(await load())['adapter_config.json'];
    const ours = JSON.parse(new TextDecoder().decode(bytes));
    const theirs = jsonOf(golden, 'adapter_config.json');
    const { target_modules: targets, ...rest } = ours;
    expect([...targets].sort()).toEqual([...(theirs['target_modules'] as string[])].sort());
    expect(theirs).toMatchObject(rest);
  });

  it('formats adapter_config.json as json.dumps with sorted keys and indent 2 does', async () => {
    const adapter = { ...(await load()), baseModel: 'Größe/🦜' };
    expect(new TextDecoder().decode(encodeAdapter(adapter)['adapter_config.json'])).toBe(adapterConfigText);
    const again = await load(encodeAdapter(adapter) as typeof golden);
    expect(again.baseModel).toBe('Größe/🦜');
  });

  it('keeps every value through a round trip with few targets, an odd rank and rank stabilisation', async () => {
    const config: LoraConfig = { rank: 3, alpha: 7.5, useRslora: true, targets: ['q_proj', 'down_proj'] };
    const adapter = initAdapter(arch, config, 5, 'base');
    const files = encodeAdapter(adapter) as typeof golden;
    const back = await load(files);
    expect(back.config).toEqual(config);
    expect([...back.tensors]).toEqual([...adapter.tensors]);
    expect(back.notes).toEqual(['every lora_B of adapter is zero: the adapter changes nothing yet']);
  });

  it('refuses to write or read values that are not finite', async () => {
    const adapter = await load();
    adapter.tensors.get('layers.1.mlp.up_proj.lora_B')![5] = Number.NaN;
    expect(await faultOf(() => encodeAdapter(adapter))).toMatch(/layers.1.mlp.up_proj.lora_B: found NaN at element 5/);
  });

  it('refuses an adapter in memory that does not fit the model', async () => {
    const adapter = await load();
    checkAdapter(adapter, arch);
    adapter.tensors.set('layers.0.self_attn.k_proj.lora_A', new Float32Array(3));
    expect(await faultOf(() => checkAdapter(adapter, arch))).toMatch(
      /found 3 values in layers.0.self_attn.k_proj.lora_A/,
    );
    adapter.tensors.delete('layers.0.self_attn.k_proj.lora_A');
    expect(await faultOf(() => checkAdapter(adapter, arch))).toMatch(/found no values in layers.0/);
    const more = await load();
    more.tensors.set('layers.3.self_attn.k_proj.lora_A', new Float32Array(256));
    expect(await faultOf(() => checkAdapter(more, arch))).toMatch(/found 43 tensors; wanted 42/);
  });

  it('takes fields that do not change how an adapter is applied, and notes a dropout', async () => {
    const files = patchJson(golden, 'adapter_config.json', {
      lora_dropout: 0.05,
      target_modules: 'all-linear',
      init_lora_weights: 'gaussian',
      revision: 'main',
      some_new_option: null,
    });
    expect((await load(files)).notes).toEqual(['adapter/adapter_config.json has lora_dropout 0.05; it is not applied']);
  });
});

describe('targets and names', () => {
  it('resolves all-linear as PEFT does, and lists in PEFT’s order whatever order is given', () => {
    expect(resolveTargets('all-linear')).toEqual([...linearNames]);
    expect(resolveTargets(['up_proj', 'v_proj', 'q_proj'])).toEqual(['q_proj', 'v_proj', 'up_proj']);
  });

  it('refuses unknown, repeated and absent targets, and the output head', async () => {
    expect(await faultOf(() => resolveTargets(['q_porj']))).toMatch(
      /target "q_porj"; wanted all-linear or some of q_proj.*Did you mean q_proj/,
    );
    expect(await faultOf(() => resolveTargets(['q_proj', 'q_proj']))).toMatch(/q_proj twice/);
    expect(await faultOf(() => resolveTargets([]))).toMatch(/an empty list/);
    expect(await faultOf(() => resolveTargets(['lm_head']))).toMatch(/lm_head.*tied model/);
  });

  it('counts what PEFT counts for the shape of Qwen3-1.7B at rank 16', () => {
    const shape = {
      ...arch,
      hiddenSize: 2048,
      intermediateSize: 6144,
      layers: 28,
      heads: 16,
      kvHeads: 8,
      headDim: 128,
    };
    const config = { ...all, rank: 16 };
    expect(parameterCount(shape, config)).toBe(17_432_576);
    expect(adapterTensorNames(shape, config)).toHaveLength(392);
  });

  it('orders parameters by layer, q k v o gate up down, A before B', () => {
    const names = adapterTensorNames(arch, all);
    expect(names.slice(0, 3).map(({ name, shape }) => `${name} ${shape}`)).toEqual([
      'layers.0.self_attn.q_proj.lora_A 4,64',
      'layers.0.self_attn.q_proj.lora_B 128,4',
      'layers.0.self_attn.k_proj.lora_A 4,64',
    ]);
    expect(names.slice(6, 14).map(({ name, shape }) => `${name} ${shape}`)).toEqual([
      'layers.0.self_attn.o_proj.lora_A 4,128',
      'layers.0.self_attn.o_proj.lora_B 64,4',
      'layers.0.mlp.gate_proj.lora_A 4,64',
      'layers.0.mlp.gate_proj.lora_B 160,4',
      'layers.0.mlp.up_proj.lora_A 4,64',
      'layers.0.mlp.up_proj.lora_B 160,4',
      'layers.0.mlp.down_proj.lora_A 4,160',
      'layers.0.mlp.down_proj.lora_B 64,4',
    ]);
    expect(names[14]!.name).toBe('layers.1.self_attn.q_proj.lora_A');
  });
});

describe('initAdapter', () => {
  it('fills A uniformly within 1/sqrt(in) and B with zeros', () => {
    const { tensors } = initAdapter({ ...arch, hiddenSize: 1024 }, { ...all, rank: 64, targets: ['q_proj'] }, 42);
    const a = tensors.get('layers.0.self_attn.q_proj.lora_A')!;
    const bound = 1 / 32;
    const [mean, square] = [a.reduce((s, x) => s + x, 0) / a.length, a.reduce((s, x) => s + x * x, 0) / a.length];
    expect(a.every((x) => Math.abs(x) <= bound)).toBe(true);
    expect(Math.max(...a.subarray(0, 4096))).toBeGreaterThan(0.99 * bound);
    expect(Math.min(...a.subarray(0, 4096))).toBeLessThan(-0.99 * bound);
    // Five standard errors of 65,536 draws.
    expect(Math.abs(mean)).toBeLessThanOrEqual((5 * bound) / Math.sqrt(3 * a.length));
    expect(Math.abs(square / (bound * bound) - 1 / 3)).toBeLessThanOrEqual(5 * Math.sqrt(4 / 45 / a.length));
    expect(tensors.get('layers.0.self_attn.q_proj.lora_B')!.every((x) => x === 0)).toBe(true);
  });

  it('depends on the seed, layer and target alone, not on the other targets', () => {
    const whole = initAdapter(arch, all, 7).tensors;
    const part = initAdapter(arch, { ...all, targets: ['v_proj'] }, 7).tensors;
    const name = 'layers.2.self_attn.v_proj.lora_A';
    expect(part.get(name)).toEqual(whole.get(name));
    expect(whole.get(name)).not.toEqual(whole.get('layers.1.self_attn.v_proj.lora_A'));
    expect(whole.get(name)).not.toEqual(whole.get('layers.2.self_attn.k_proj.lora_A'));
    for (const seed of [8, 7 + 2 ** 32])
      expect(initAdapter(arch, all, seed).tensors.get(name)).not.toEqual(whole.get(name));
  });

  it('gives the same numbers on every machine', () => {
    const a = initAdapter(arch, all, 42).tensors.get('layers.0.self_attn.q_proj.lora_A')!;
    expect([...a.subarray(0, 4)]).toMatchInlineSnapshot(`
      [
        -0.053103942424058914,
        -0.06726868450641632,
        -0.10850604623556137,
        -0.08972225338220596,
      ]
    `);
  });

  it('refuses a rank, an alpha or a seed that cannot be used', async () => {
    for (const patch of [{ rank: 0 }, { rank: 1.5 }, { alpha: 0 }, { alpha: -1 }, { alpha: Number.NaN }]) {
      expect(await faultOf(() => initAdapter(arch, { ...all, ...patch }, 1))).toMatch(/\[bad-lora-config\]/);
    }
    for (const seed of [-1, 1.5, 2 ** 53])
      expect(await faultOf(() => initAdapter(arch, all, seed))).toMatch(/\[bad-seed\]/);
  });
});
