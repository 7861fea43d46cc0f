import { describe, expect, test } from 'vitest';
import { type BitsResult, sameBits } from '../../bench/bits.ts';
import { sameTokens, type TokenComparison } from '../../bench/compare-tokens.ts';
import { growthOf } from '../../bench/cost.ts';
import { namedShapes, randomSource } from '../../bench/models.ts';
import { peerShapes } from '../../bench/peers/run.ts';
import type { BenchResult } from '../../bench/run.ts';
import { settingsFor, tokenSettings } from '../../bench/settings.ts';
import { benchText, bitsText } from '../../bench/text.ts';
import { chromeTrace, type Span, summarise } from '../../src/gpu/timing.ts';
import { decodeToF32 } from '../../src/lib/half.ts';
import { type ModelFiles, openModelFiles } from '../../src/model/model-files.ts';
import type { WeightChunk } from '../../src/model/weight-chunks.ts';

const span = (kernel: string, phase: string, startNs: number, durationNs: number): Span => ({
  kernel,
  phase,
  startNs,
  durationNs,
  grid: [2, 3, 1],
});
const spans = [
  span('matmul', 'decode', 5000, 1000),
  span('rmsnorm', 'decode', 7000, 3000),
  span('matmul', 'train', 20_000, 4000),
];

describe('GPU times', () => {
  test('are summed by kernel, the longest first', () => {
    expect(summarise(spans)).toEqual([
      { kernel: 'matmul', dispatches: 2, ms: 0.005 },
      { kernel: 'rmsnorm', dispatches: 1, ms: 0.003 },
    ]);
  });

  test('are written as Chrome trace events in microseconds from the first dispatch, a track a phase', () => {
    const { traceEvents } = JSON.parse(chromeTrace(spans, 'a device')) as { traceEvents: Record<string, unknown>[] };
    expect(traceEvents.filter(({ ph }) => ph === 'M').map(({ args }) => args)).toEqual([
      { name: 'a device' },
      { name: 'decode' },
      { name: 'train' },
    ]);
    const whole = traceEvents.filter(({ ph }) => ph === 'X');
    expect(whole.map(({ name, ts, dur, tid }) => [name, ts, dur, tid])).toEqual([
      ['matmul', 0, 1, 0],
      ['rmsnorm', 2, 3, 0],
      ['matmul', 15, 4, 1],
    ]);
    expect(whole[0]!['args']).toEqual({ grid: '2x3x1' });
  });
});

async function chunks(files: ModelFiles, ref: ReturnType<ModelFiles['weight']>, bytes: number) {
  const all: WeightChunk[] = [];
  for await (const chunk of files.readWeightChunks(ref, bytes)) all.push(chunk);
  return all;
}

describe('models with random weights', () => {
  test('open as checkpoints of their named shape', async () => {
    const { architecture, tensors } = await openModelFiles(randomSource('qwen3-1.7b'));
    expect(architecture).toMatchObject({
      layers: 28,
      hiddenSize: 2048,
      heads: 16,
      kvHeads: 8,
      headDim: 128,
      tied: true,
    });
    const parameters = [...tensors.values()].reduce((sum, { lengthBytes }) => sum + lengthBytes / 2, 0);
    expect(parameters).toBe(1_720_574_976);
  });

  test('give the same bytes however they are read, ones in norms and small finite values in matrices', async () => {
    const source = randomSource('qwen3-0.6b');
    const files = await openModelFiles(source);
    const norm = files.weight('model.layers.3.input_layernorm.weight');
    const [chunk] = await chunks(files, norm, 2 ** 20);
    expect(new Set(chunk!.values)).toEqual(new Set([0x3f80]));
    const middle = 400_000_001;
    const whole = await source.read('model.safetensors', middle, 3_000_000);
    const parts = [
      await source.read('model.safetensors', middle, 1_048_577),
      await source.read('model.safetensors', middle + 1_048_577, 3_000_000 - 1_048_577),
    ];
    expect(Buffer.concat(parts).equals(whole)).toBe(true);
    const query = files.weight('model.layers.0.self_attn.q_proj.weight');
    const [first] = await chunks(files, query, 2 ** 22);
    const values = decodeToF32(new Uint8Array(first!.values.buffer), 'BF16');
    expect(values.every((value) => Math.abs(value) <= 0.035)).toBe(true);
    expect(new Set(values.subarray(0, 4096)).size).toBeGreaterThan(500);
  });

  test('have the published names', () => {
    expect(Object.keys(namedShapes)).toEqual(['qwen3-0.6b', 'qwen3-1.7b', 'qwen3-4b']);
  });
});

const result: BenchResult = {
  schema: 'shaderl.bench/2',
  device: { name: 'd', description: 'a device', software: true, dawn: 'webgpu 0', toggles: [] },
  family: 'portable',
  familyReason: 'no matrix: no such feature',
  variant: 'lanes',
  robustness: true,
  model: { label: 'm', parameters: 4e5, weightBytes: 8e5, loadSeconds: 0.02, matrices: null },
  settings: settingsFor(4e5, true),
  limits: { copyGBs: 10, matmulGflops: 20, matmulShape: '512x512x512' },
  kernels: {
    matmul: [
      {
        ...{ layer: 'qkv', shape: '16x256x96', ms: 0.1, layerMs: 0.12 },
        ...{ gflops: 7.86, ofLimit: 0.39, weightGBs: 0.5, ofCopy: 0.05 },
      },
      {
        ...{ layer: 'head', shape: '4096x8192x4096', ms: 9e3, layerMs: 9e3 },
        ...{ gflops: 30, ofLimit: 1.5, weightGBs: 0.1, ofCopy: 0.01 },
      },
    ],
    trace: [{ phase: 'decode', kernel: 'matmul-lanes', dispatches: 4, ms: 1.5 }],
    parts: {
      batch: 4,
      context: 512,
      stepMs: 2.5,
      parts: [{ kernel: 'matrix-rows', dispatches: 112, usInStep: 450, usEach: 4.02, usAlone: 3.1 }],
    },
  },
  decode: [{ batch: 8, context: 256, ms: 12, bestMs: 11, tokensPerSecond: 667, bytes: 4e6, ofCopy: 0.033 }],
  growth: [{ batch: 8, contexts: [128, 256], msPerThousand: 7.25, expectedMsPerThousand: 2.8, msAtZero: 3 }],
  prefill: { sequences: 8, tokens: 1680, ms: 300, tokensPerSecond: 5600 },
  train: { sequences: 8, tokens: 2192, seconds: 2, tokensPerSecond: 1096 },
  step: null,
  start: {
    loadSeconds: 0.7,
    firstTokenSeconds: 1.9,
    marks: [{ name: 'device', seconds: 0.4 }],
    pipelines: 16,
  },
  memory: { peakBytes: 1e8 },
  skipped: [{ what: 'step', reason: 'no room' }],
};

describe('the bench', () => {
  test('shows every figure and every reason for a missing one', () => {
    const peers = {
      peers: { tfjs: { '16x256x96': { ours: 0.1, peer: 0.35, unit: 'ms', ratio: 3.5 } } },
      notes: { tfjs: 'the same adapter' },
      skipped: [{ what: 'peer transformers', reason: 'no module named torch' }],
    };
    const text = benchText(result, peers);
    for (const part of [
      'no matrix: no such feature',
      '10.0 GB/s',
      '16x256x96',
      '39 %',
      '5600 tokens/s',
      '7.25',
      '1.90 s, weights in 0.700 s',
      '0.100 GB',
      '3.50 x',
      'matmul-lanes',
      'no module named torch',
    ])
      expect(text).toContain(part);
    expect(text).toContain('skipped step: no room');
  });

  test('leaves products out of the peers that a software adapter would not end', () => {
    expect(peerShapes(result).map(({ shape, ms }) => [shape, ms])).toEqual([['16x256x96', 0.12]]);
    const gpu = { ...result, device: { ...result.device, software: false } };
    expect(peerShapes(gpu)).toHaveLength(2);
    // A product that comes twice is timed once; one whose operands are gigabytes in f32 is not.
    const [small, large] = result.kernels.matmul;
    const matmul = [small!, { ...small!, layer: 'up' }, { ...large!, shape: '4x151936x2048' }];
    expect(peerShapes({ ...gpu, kernels: { ...gpu.kernels, matmul } }).map(({ shape }) => shape)).toEqual([
      '16x256x96',
    ]);
  });

  test('measures a group of four with 256 prompt and 512 new tokens on a GPU', () => {
    expect(settingsFor(1.7e9, false)).toMatchObject({ group: 4, promptTokens: 256, newTokens: 512, rank: 16 });
    expect(settingsFor(1.7e9, true).newTokens).toBeLessThan(8);
  });

  test('fits the growth of decoding for every batch that has two contexts, against the bytes of the cache', () => {
    const at = (batch: number, context: number, ms: number) => ({ batch, context, ms });
    const decode = [at(1, 500, 2.5), at(4, 500, 3), at(1, 1000, 3), at(1, 2000, 4)];
    const [only, ...rest] = growthOf(decode, 2e5, 4000);
    expect(rest).toEqual([]);
    expect(only).toMatchObject({ batch: 1, contexts: [500, 1000, 2000] });
    expect(only!.msPerThousand).toBeCloseTo(1, 9);
    expect(only!.msAtZero).toBeCloseTo(2, 9);
    // 1,000 positions of 200 kB at 4 TB/s.
    expect(only!.expectedMsPerThousand).toBeCloseTo(0.05, 12);
  });

  test('says that runs differ if one hash or one log-prob does', () => {
    const run = { tokens: 'a', adapter: 'b', moments: 'c', logprobMismatches: 0 };
    expect(sameBits([run, { ...run }])).toBe(true);
    for (const change of [{ tokens: 'x' }, { adapter: 'x' }, { moments: 'x' }, { logprobMismatches: 1 }])
      expect(sameBits([run, { ...run, ...change }])).toBe(false);
  });

  test('says that sampled tokens differ if one log-prob, entropy or draw does, or none was compared', () => {
    const none = { logprobs: 0, entropies: 0 };
    const batch: TokenComparison = {
      ...{ batch: 16, members: 25, tokens: 892, fullTokens: 528 },
      ...{ reference: none, trainer: none, earlier: { tokens: 289, differ: 0 } },
    };
    expect(sameTokens([batch, { ...batch, batch: 64 }])).toBe(true);
    const changes: Partial<TokenComparison>[] = [
      { reference: { logprobs: 1, entropies: 0 } },
      { reference: { logprobs: 0, entropies: 1 } },
      { trainer: { logprobs: 1, entropies: 0 } },
      { trainer: { logprobs: 0, entropies: 1 } },
      { earlier: { tokens: 289, differ: 1 } },
      { tokens: 0 },
    ];
    for (const change of changes) expect(sameTokens([batch, { ...batch, ...change }])).toBe(false);
    expect(sameTokens([])).toBe(false);
    const run = { robustness: true, tracing: false, tokens: 'a', adapter: 'b', moments: 'c', logprobMismatches: 0 };
    const text = bitsText({
      ...{ schema: 'shaderl.bench-bits/2', shape: 'embedded', family: 'portable', equal: false, steps: 2 },
      ...{ settings: settingsFor(4e5, true), tokenSettings: tokenSettings(4e5, true), runs: [run, run] },
      comparison: [{ ...batch, trainer: { logprobs: 2, entropies: 3 } }],
    } satisfies BitsResult);
    expect(text).toMatchInlineSnapshot(`
      "embedded, family portable: DIFFERENT: of 892 sampled tokens, not all have the same log-prob and entropy in every pass (by batch: log-probs, entropies that differ)
      batch  members  tokens  at full batch  reference  trainer  earlier batch
      -----  -------  ------  -------------  ---------  -------  -------------
         16       25     892            528       0, 0     2, 3       0 of 289

      embedded, family portable: the same bytes after 2 steps in all 2 runs (SHA-256, first 16 digits)
      robustness  tracing  tokens  adapter  moments  log-probs that differ
      ----------  -------  ------  -------  -------  ---------------------
      on          off      a       b        c                            0
      on          off      a       b        c                            0"
    `);
  });
});
