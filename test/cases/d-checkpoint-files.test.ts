// Public bug cases D1, D2 and D6: a LoRA update lost in a bf16 merge, adapter keys that match nothing, a wrong scale.
import { describe, expect, it } from 'vitest';
import { mergeAdapter, mergeChunk } from '../../src/export/merge.ts';
import { figuresOf, newTally } from '../../src/export/merge-audit.ts';
import { bf16ToF32, encodeBf16, f32ToBf16 } from '../../src/lib/half.ts';
import { streamWords } from '../../src/lib/rng.ts';
import { encodeAdapter, loadAdapter } from '../../src/model/adapter-files.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { initAdapter, loraScale } from '../../src/model/lora.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { editTensors, faultOf, goldenFiles, patchJson } from '../support/checkpoint-files.ts';

const weights = 'adapter_model.safetensors';
const golden = goldenFiles('tiny-qwen3-tied-lora');
const base = await openModelFiles(memorySource('base', goldenFiles('tiny-qwen3-tied')));
const load = (files: typeof golden) => loadAdapter(memorySource('adapter', files), base.architecture);
const rename = (edit: (key: string) => string) =>
  editTensors(golden, weights, (tensors) => tensors.map((tensor) => ({ ...tensor, name: edit(tensor.name) })));

/** Standard normal numbers, by Box and Muller, from a seeded stream. */
function normals(count: number, stream: number): Float32Array {
  return Float32Array.from({ length: count }, (_, i) => {
    const [a, b] = streamWords(7, stream, i);
    return Math.sqrt(-2 * Math.log((a + 1) / 2 ** 32)) * Math.cos((2 * Math.PI * b) / 2 ** 32);
  });
}

describe('D1: merging a small LoRA delta into bf16 weights', () => {
  const mergeOne = (weight: number, delta: number) => {
    const values = Uint16Array.of(f32ToBf16(weight));
    const update = { a: Float32Array.of(delta), b: Float32Array.of(1), rank: 1, columns: 1, scale: 1 };
    const tally = newTally();
    const chunk = { offsetElements: 0, storage: 'bf16', exactBf16: true, values } as const;
    const merged = mergeChunk(chunk, { name: 'w', dtype: 'BF16' }, update, tally);
    return { before: bf16ToF32(values[0]!), after: bf16ToF32(merged[0]!), figures: figuresOf(tally) };
  };

  it.each([
    [1, 0.0039, 1, 1],
    [1, 0.004, 1, 1.0078125],
    [0.02, 0.00005, 0.02001953125, 0.02001953125],
    [0.02, 0.0001, 0.02001953125, 0.02001953125 + 0.0001220703125],
  ])('adds to bf16(%d) the update %d', (weight, delta, before, after) => {
    const merged = mergeOne(weight, delta);
    expect(merged.before).toBe(before);
    expect(merged.after).toBe(after);
    const lost = before === after;
    expect(merged.figures).toMatchObject({
      changedShare: lost ? 0 : 1,
      largestLostUpdate: lost ? Math.fround(delta) : 0,
    });
    expect(merged.figures.relativeDeltaError).toBeCloseTo(Math.abs((after - before) / Math.fround(delta) - 1), 6);
  });

  it('loses about 65 % of a typical small update of a 256 x 256 matrix, and says so', () => {
    const [n, rank] = [256, 8];
    const values = encodeBf16(normals(n * n, 1).map((x) => 0.02 * x));
    const [a, b] = [normals(rank * n, 2), normals(n * rank, 3)];
    // Scaled so that the update's root mean square is 3.6e-5, as in the report.
    let squares = 0;
    for (let i = 0; i < n * n; i++) {
      let sum = 0;
      for (let r = 0; r < rank; r++) sum += b[Math.floor(i / n) * rank + r]! * a[r * n + (i % n)]!;
      squares += sum * sum;
    }
    const scale = 3.6e-5 / Math.sqrt(squares / (n * n));
    const tally = newTally();
    const chunk = { offsetElements: 0, storage: 'bf16', exactBf16: true, values } as const;
    mergeChunk(chunk, { name: 'w', dtype: 'BF16' }, { a, b, rank, columns: n, scale }, tally);
    const { elements, changedShare, relativeDeltaError, largestLostUpdate } = figuresOf(tally);
    expect(elements).toBe(65_536);
    expect(Math.abs(1 - changedShare - 0.65)).toBeLessThanOrEqual(0.02);
    expect(Math.abs(relativeDeltaError - 0.64)).toBeLessThanOrEqual(0.02);
    expect(largestLostUpdate).toBeGreaterThan(3.6e-5);
  });

  it('marks a merge that loses too much of the update as not equivalent', async () => {
    const adapter = await load(golden);
    const put = async (_: string, chunks: AsyncIterable<Uint8Array>) => {
      for await (const _chunk of chunks);
    };
    const whole = await mergeAdapter(base, adapter, { put });
    const small = await mergeAdapter(base, { ...adapter, config: { ...adapter.config, alpha: 0.02 } }, { put });
    expect(whole.verdict).toBe('equivalent');
    expect(small.verdict).toBe('not equivalent');
    expect(small.totals.changedShare).toBeLessThan(whole.totals.changedShare);
    expect(small.totals.relativeDeltaError).toBeGreaterThan(small.threshold);
  });
});

describe('D2: adapter keys that match nothing', () => {
  it('maps the adapter name "default" in keys and notes it', async () => {
    const files = await rename((key) => key.replace('.weight', '.default.weight'));
    const adapter = await load(files);
    expect(adapter.notes).toEqual([
      '42 keys of adapter/adapter_model.safetensors carry the adapter name "default"; it was dropped',
    ]);
    expect([...adapter.tensors]).toEqual([...(await load(golden)).tensors]);
  });

  it.each<[string, (key: string) => string]>([
    ['a language_model prefix', (key) => key.replace('model.model.model.', 'model.model.language_model.model.')],
    ['no prefix', (key) => key.replace('base_model.model.', '')],
    ['another module', (key) => key.replace('.self_attn.', '.attention.')],
    ['another suffix', (key) => key.replace('.weight', '.bias')],
    ['another adapter name', (key) => key.replace('.weight', '.other.weight')],
  ])('refuses %s, with sample names from both sides', async (_name, edit) => {
    const files = await rename(edit);
    const message = await faultOf(() => load(files));
    expect(message).toMatch(/\[missing-tensor\] matching adapter\/adapter_model.safetensors/);
    const keys = ['mlp.down_proj', 'self_attn.k_proj'].map(
      (path) => `base_model.model.model.layers.0.${path}.lora_A.weight`,
    );
    expect(message).toContain(edit(keys.find((key) => edit(key) !== key)!));
    expect(message).toMatch(/wanted 42 keys \(base_model\.model\.model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight/);
  });

  it('refuses lora_A without lora_B', async () => {
    const files = await editTensors(golden, weights, (tensors) =>
      tensors.filter(({ name }) => name.includes('lora_A')),
    );
    expect(await faultOf(() => load(files))).toMatch(
      /found 21 parameters without a key; wanted 42 keys \(base_model.*q_proj.lora_B.weight/,
    );
  });

  it('refuses a layer that the base model does not have', async () => {
    const files = await rename((key) => key.replace('layers.2.', 'layers.3.'));
    expect(await faultOf(() => load(files))).toMatch(
      /14 keys that belong to nothing \(base_model.model.model.layers.3.*14 parameters without a key/,
    );
    const extra = await editTensors(golden, weights, (tensors) => [
      ...tensors,
      { ...tensors[0]!, name: tensors[0]!.name.replace('layers.0.', 'layers.3.') },
    ]);
    expect(await faultOf(() => load(extra))).toMatch(
      /\[extra-tensor\].*1 keys that belong to nothing \(base_model.model.model.layers.3/,
    );
  });

  it('refuses a rank in the file that differs from adapter_config.json', async () => {
    expect(await faultOf(() => load(patchJson(golden, 'adapter_config.json', { r: 16 })))).toMatchInlineSnapshot(
      `"[wrong-shape] checking adapter/adapter_model.safetensors, tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: found shape [4,64]; wanted [16,64] (r = 16 in adapter_config.json). Check that adapter_config.json and the base model belong to this adapter."`,
    );
  });

  it('refuses targets that the file does not fill, and files that hold more than the targets', async () => {
    const fewer = await editTensors(golden, weights, (tensors) =>
      tensors.filter(({ name }) => !name.includes('up_proj')),
    );
    expect(await faultOf(() => load(fewer))).toMatch(/6 parameters without a key/);
    const targets = patchJson(golden, 'adapter_config.json', { target_modules: ['q_proj'] });
    expect(await faultOf(() => load(targets))).toMatch(/\[extra-tensor\].*36 keys that belong to nothing/);
  });

  it('refuses one parameter under two keys', async () => {
    const files = await editTensors(golden, weights, (tensors) => [
      ...tensors,
      { ...tensors[0]!, name: tensors[0]!.name.replace('.weight', '.default.weight') },
    ]);
    expect(await faultOf(() => load(files))).toMatch(/\[duplicate-tensor\]/);
  });

  it('reports an adapter whose lora_B is all zero', async () => {
    const fresh = initAdapter(base.architecture, (await load(golden)).config, 3);
    const { notes } = await load(encodeAdapter(fresh) as typeof golden);
    expect(notes).toEqual(['every lora_B of adapter is zero: the adapter changes nothing yet']);
  });
});

describe('D6: the scale of an adapter', () => {
  const scaleOf = async (patch: Record<string, unknown>) =>
    loraScale((await load(patchJson(golden, 'adapter_config.json', patch))).config);

  it('is alpha / r, or alpha / sqrt(r) with use_rslora', async () => {
    const config = { rank: 8, alpha: 16, targets: [] };
    expect(loraScale({ ...config, useRslora: false })).toBe(2);
    expect(loraScale({ ...config, useRslora: true })).toBeCloseTo(5.656854, 6);
    expect(await scaleOf({})).toBe(2);
    expect(await scaleOf({ use_rslora: true })).toBe(4);
    expect(await scaleOf({ lora_alpha: 3.5 })).toBe(0.875);
  });

  it('survives export and load', async () => {
    for (const useRslora of [false, true]) {
      const adapter = await load(golden);
      adapter.config.useRslora = useRslora;
      adapter.config.alpha = 12.25;
      expect(loraScale((await load(encodeAdapter(adapter) as typeof golden)).config)).toBe(loraScale(adapter.config));
    }
  });

  it('is the one that the merge uses', async () => {
    const adapter = await load(patchJson(golden, 'adapter_config.json', { use_rslora: true }));
    const put = async (_: string, chunks: AsyncIterable<Uint8Array>) => {
      for await (const _chunk of chunks);
    };
    expect((await mergeAdapter(base, adapter, { put })).scale).toBe(4);
  });

  it('refuses lora_alpha 0 on load and on export', async () => {
    expect(await faultOf(() => scaleOf({ lora_alpha: 0 }))).toMatch(
      /\[bad-lora-config\] reading adapter\/adapter_config.json: found lora_alpha 0/,
    );
    const adapter = await load(golden);
    adapter.config.alpha = 0;
    expect(await faultOf(() => encodeAdapter(adapter))).toMatch(
      /\[bad-lora-config\] writing adapter_config.json: found lora_alpha 0/,
    );
  });

  it.each<[Record<string, unknown>]>([
    [{ use_dora: true }],
    [{ rank_pattern: { q_proj: 8 } }],
    [{ alpha_pattern: { q_proj: 8 } }],
    [{ modules_to_save: ['lm_head'] }],
    [{ bias: 'lora_only' }],
    [{ fan_in_fan_out: true }],
    [{ lora_bias: true }],
    [{ layers_to_transform: [0] }],
    [{ exclude_modules: 'q_proj' }],
    [{ trainable_token_indices: [1] }],
    [{ layer_replication: [[0, 2]] }],
    [{ target_parameters: ['x'] }],
    [{ use_qalora: true }],
    [{ init_lora_weights: 'pissa' }],
    [{ option_of_tomorrow: 1 }],
    [{ peft_type: 'ADALORA' }],
    [{ task_type: 'SEQ_CLS' }],
  ])('refuses %j by name', async (patch) => {
    const [key] = Object.keys(patch);
    const message = await faultOf(() => scaleOf(patch));
    expect(message).toMatch(/reading adapter\/adapter_config.json: found .*; wanted .*\. \S/);
    expect(message).toContain(`${key} = `);
  });

  it('refuses a regular expression, a repeated target and a rank that is no count', async () => {
    expect(await faultOf(() => scaleOf({ target_modules: '.*proj' }))).toMatch(/target_modules = "\.\*proj"/);
    expect(await faultOf(() => scaleOf({ target_modules: ['q_proj', 'q_proj'] }))).toMatch(/q_proj twice/);
    expect(await faultOf(() => scaleOf({ target_modules: ['lm_head'] }))).toMatch(/lm_head/);
    expect(await faultOf(() => scaleOf({ r: 0 }))).toMatch(/r = 0/);
  });
});
