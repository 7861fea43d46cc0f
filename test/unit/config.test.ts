// config.json in both spellings of transformers, and the refusal of everything that the forward pass does not do.
import { describe, expect, it } from 'vitest';
import { type Architecture, parseArchitecture } from '../../src/model/config.ts';
import { ropeInverseFrequencies, ropeTables } from '../../src/model/rope.ts';
import { faultOf, goldenFiles, jsonOf } from '../support/checkpoint-files.ts';

const qwen3 = jsonOf(goldenFiles('tiny-qwen3-tied'), 'config.json');
const llama = jsonOf(goldenFiles('tiny-llama-tied'), 'config.json');
const { rope_parameters: _, dtype: __, ...bare } = llama;

const parse = (config: unknown, generation: unknown = null) => parseArchitecture(config, generation, 'm');
const without = (config: Record<string, unknown>, ...keys: string[]) =>
  Object.fromEntries(Object.entries(config).filter(([key]) => !keys.includes(key)));
const llama3 = {
  rope_type: 'llama3',
  factor: 32,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
};

describe('parseArchitecture', () => {
  it('reads the golden Qwen3 config', () => {
    expect(parse(qwen3)).toEqual({
      modelType: 'qwen3',
      vocabSize: 320,
      hiddenSize: 64,
      intermediateSize: 160,
      layers: 3,
      heads: 4,
      kvHeads: 2,
      headDim: 32,
      rmsNormEps: 1e-6,
      qkNorm: true,
      tied: true,
      rope: { type: 'default', theta: 1e6 },
      maxPositions: 512,
      eosTokenIds: [3],
      bosTokenId: null,
      padTokenId: 0,
    } satisfies Architecture);
  });

  it('reads the spelling of transformers 4 as that of transformers 5', () => {
    expect(parse({ ...bare, torch_dtype: 'bfloat16', rope_theta: 10000, rope_scaling: null })).toEqual(parse(llama));
    const old = { ...bare, rope_theta: 500000, rope_scaling: llama3 };
    const { rope_type, ...scaling } = llama3;
    const older = { ...bare, rope_theta: 500000, rope_scaling: { type: rope_type, ...scaling } };
    const current = { ...bare, rope_parameters: { ...llama3, rope_theta: 500000 } };
    expect(parse(old)).toEqual(parse(current));
    expect(parse(older)).toEqual(parse(current));
    expect(parse(current).rope).toEqual({
      type: 'llama3',
      theta: 500000,
      factor: 32,
      lowFreqFactor: 1,
      highFreqFactor: 4,
      originalMaxPositions: 8192,
    });
  });

  it('gives absent keys the values that transformers gives them', () => {
    const arch = parse(
      without(bare, 'head_dim', 'num_key_value_heads', 'tie_word_embeddings', 'max_position_embeddings'),
    );
    expect(arch).toMatchObject({ headDim: 16, kvHeads: 4, tied: false, maxPositions: 2048 });
    expect(arch.rope).toEqual({ type: 'default', theta: 10000 });
    expect(parse(without(qwen3, 'head_dim')).headDim).toBe(128);
  });

  it('takes head widths that do not add up to the hidden size, and sizes that are multiples of nothing', () => {
    const odd = {
      hidden_size: 63,
      intermediate_size: 157,
      vocab_size: 321,
      head_dim: 18,
      num_attention_heads: 6,
      num_key_value_heads: 3,
    };
    expect(parse({ ...qwen3, ...odd })).toMatchObject({ hiddenSize: 63, vocabSize: 321, headDim: 18, kvHeads: 3 });
  });

  it('takes the stop ids of generation_config.json if it has any, else those of config.json', () => {
    expect(parse(qwen3, { eos_token_id: [151, 2, 151] }).eosTokenIds).toEqual([2, 151]);
    expect(parse(qwen3, { eos_token_id: 7 }).eosTokenIds).toEqual([7]);
    expect(parse(qwen3, { temperature: 0.6 }).eosTokenIds).toEqual([3]);
    expect(parse({ ...qwen3, eos_token_id: [5, 4] }, { eos_token_id: null }).eosTokenIds).toEqual([4, 5]);
    expect(parse(without(qwen3, 'eos_token_id')).eosTokenIds).toEqual([]);
  });

  it('takes a sliding window that no layer uses', () => {
    expect(
      parse({ ...without(qwen3, 'layer_types'), use_sliding_window: true, sliding_window: 128, max_window_layers: 3 })
        .layers,
    ).toBe(3);
    expect(parse({ ...qwen3, use_sliding_window: false, sliding_window: 128 }).layers).toBe(3);
  });

  it('says which kinds of model are supported', async () => {
    expect(await faultOf(() => parse({ ...qwen3, model_type: 'qwen3_moe' }))).toMatchInlineSnapshot(
      `"[unsupported-config] reading m/config.json: found model_type = "qwen3_moe"; wanted model_type = qwen3 (dense) or llama. Use a checkpoint of a supported kind (Qwen3 dense, Llama), or correct the file."`,
    );
  });

  it.each<[string, Record<string, unknown>, RegExp]>([
    ['attention_bias', { attention_bias: true }, /attention_bias = true/],
    ['mlp_bias', { mlp_bias: true }, /mlp_bias = true/],
    ['another activation', { hidden_act: 'gelu' }, /hidden_act = "gelu"; wanted hidden_act = silu/],
    [
      'heads that do not divide',
      { num_key_value_heads: 3 },
      /num_key_value_heads = 3.*divisor of num_attention_heads 4/,
    ],
    ['absent key-value heads', { num_key_value_heads: null }, /num_key_value_heads = null/],
    ['an odd head', { head_dim: 31 }, /head_dim = 31/],
    ['a zero head', { head_dim: 0 }, /head_dim = 0/],
    ['quantisation', { quantization_config: { quant_method: 'fp8' } }, /quantization_config = {"quant_method":"fp8"}/],
    [
      'a sliding layer',
      { layer_types: ['full_attention', 'sliding_attention', 'full_attention'] },
      /sliding_attention/,
    ],
    ['too few layer types', { layer_types: ['full_attention'] }, /layer_types.*wanted layer_types = 3 entries/],
    [
      'a window in use',
      { layer_types: null, use_sliding_window: true, sliding_window: 64, max_window_layers: 1 },
      /sliding_window = 64/,
    ],
    ['another head class', { architectures: ['Qwen3ForSequenceClassification'] }, /Qwen3ForSequenceClassification/],
    ['dtypes that contradict', { torch_dtype: 'float16' }, /dtype = "bfloat16".*torch_dtype, "float16"/],
    ['an eos id outside the vocabulary', { eos_token_id: [3, 320] }, /eos_token_id 320.*0 to 319/],
    ['a fractional width', { hidden_size: 64.5 }, /hidden_size = 64.5/],
    ['an absent width', { hidden_size: undefined }, /hidden_size = nothing/],
    ['text for a number', { vocab_size: '320' }, /vocab_size = "320"/],
    [
      'yarn',
      { rope_parameters: { rope_type: 'yarn', rope_theta: 1e6, factor: 4 } },
      /rope type "yarn"; wanted default, linear or llama3/,
    ],
    ['dynamic', { rope_parameters: null, rope_scaling: { type: 'dynamic', factor: 2 } }, /rope type "dynamic"/],
    ['longrope', { rope_parameters: { rope_type: 'longrope', short_factor: [1] } }, /rope type "longrope"/],
    ['theta twice', { rope_theta: 5 }, /rope_theta both as 1000000 and as 5/],
    ['linear without factor', { rope_parameters: { rope_type: 'linear' } }, /factor = nothing/],
    ['llama3 without its fields', { rope_parameters: { rope_type: 'llama3', factor: 8 } }, /low_freq_factor = nothing/],
    [
      'llama3 upside down',
      { rope_parameters: { ...llama3, low_freq_factor: 4 } },
      /low_freq_factor 4, high_freq_factor 4/,
    ],
    [
      'default with a factor',
      { rope_parameters: { rope_type: 'default', factor: 8 } },
      /rope type default with factor 8/,
    ],
    ['partial rotation', { partial_rotary_factor: 0.5 }, /partial_rotary_factor = 0.5/],
    ['rope by layer type', { rope_parameters: { full_attention: { rope_theta: 1 } } }, /full_attention/],
  ])('refuses %s by name', async (_name, patch, text) => {
    const message = await faultOf(() => parse({ ...qwen3, ...patch }));
    expect(message).toMatch(text);
    expect(message).toMatch(/reading m\/config.json.*: found .*; wanted .*\. \S/s);
  });

  it('refuses a Llama width that its heads do not divide, unless head_dim is given', async () => {
    expect(await faultOf(() => parse({ ...llama, head_dim: null, hidden_size: 65 }))).toMatch(
      /65 is no multiple of 4 heads/,
    );
    expect(parse({ ...llama, hidden_size: 65 }).headDim).toBe(16);
  });
});

describe('rope', () => {
  const withRope = (rope: Architecture['rope'], headDim: number) => ({ headDim, rope });

  it('scales as llama3 does in transformers 5.18 (Llama 3.2 1B)', () => {
    // LlamaRotaryEmbedding's own f32 numbers.
    const theirs = [
      1.0, 0.663601279, 0.440366626, 0.292227834, 0.193922758, 0.128687382, 0.0853971019, 0.0566696189, 0.0376060307,
      0.0249554086, 0.0165604409, 0.0109895291, 0.00729266508, 0.00483942125, 0.00321144611, 0.00129054801,
      0.000429556705, 9.70828623e-5, 1.94616387e-5, 1.29147675e-5, 8.57025589e-6, 5.68723226e-6, 3.77405445e-6,
      2.50446715e-6, 1.66196742e-6, 1.10288363e-6, 7.31874934e-7, 4.85673127e-7, 3.22293289e-7, 2.1387423e-7,
      1.41927202e-7, 9.41830649e-8,
    ];
    const { rope } = parse({ ...bare, rope_theta: 500000, rope_scaling: llama3 });
    const ours = ropeInverseFrequencies(withRope(rope, 64));
    expect(ours).toHaveLength(32);
    // The blended ones cancel in f32, hence 2e-5 there.
    for (const [i, value] of ours.entries()) {
      const relative = Math.abs(value - theirs[i]!) / theirs[i]!;
      if (!(relative <= (i >= 15 && i <= 17 ? 2e-5 : 5e-7))) expect.fail(`element ${i}: ${value} for ${theirs[i]}`);
    }
  });

  it('scales linearly as transformers does', () => {
    const ours = ropeInverseFrequencies(withRope({ type: 'linear', theta: 10000, factor: 4 }, 64));
    for (const [i, value] of [0.25, 0.18747355, 0.140585333, 0.105424128].entries()) {
      expect(Math.abs(ours[i]! - value)).toBeLessThanOrEqual(1e-8);
    }
  });

  it('rounds tables once from f64, far positions too', () => {
    const rope = { type: 'default', theta: 10000 } as const;
    const { cos, sin } = ropeTables(withRope(rope, 8), 5000);
    expect(cos).toHaveLength(5000 * 4);
    for (const [position, i] of [
      [0, 0],
      [1, 3],
      [4999, 0],
      [4999, 2],
    ] as const) {
      const angle = position * 10 ** -i;
      expect(Math.abs(cos[position * 4 + i]! - Math.cos(angle))).toBeLessThanOrEqual(2 ** -24);
      expect(Math.abs(sin[position * 4 + i]! - Math.sin(angle))).toBeLessThanOrEqual(2 ** -24);
    }
  });
});
