// The bench on a tiny model: every figure is there, positive, and held against the limits that were measured.
import { expect, test } from 'vitest';
import { runBench } from '../../bench/run.ts';
import type { Span } from '../../src/gpu/timing.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { goldenPath } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();

test('measures limits, products, decoding, prefill, training, a whole step and GPU time by kernel', async () => {
  const spans: Span[] = [];
  const result = await runBench(gpu(), folderSource(goldenPath('tiny-qwen3-tied')), {
    family: 'portable',
    familyReason: 'asked for',
    robustness: true,
    batches: [1, 3],
    contexts: [8, 16],
    settings: {
      kernelRows: 40,
      group: 2,
      promptTokens: 6,
      newTokens: 3,
      rank: 4,
      decodeTokens: 4,
      warmMs: 0,
      budgetMs: 1,
    },
    onSpans: (all) => spans.push(...all),
  });
  const { limits, kernels, decode, prefill, train, step } = result;
  expect(result.skipped).toEqual([]);
  for (const value of [limits.copyGBs, limits.matmulGflops, prefill?.ms, train?.seconds, step?.seconds])
    expect(value).toBeGreaterThan(0);
  const layers = ['qkv', 'o', 'gateUp', 'down', 'up', 'head'];
  expect(kernels.matmul.map(({ layer }) => layer)).toEqual([...layers, ...layers]);
  for (const { shape, ms, gflops, ofLimit } of kernels.matmul) {
    const flops = shape.split('x').reduce((product, extent) => product * Number(extent), 2);
    expect(gflops).toBeCloseTo(flops / ms / 1e6, 6);
    expect(ofLimit).toBeCloseTo(gflops / limits.matmulGflops, 9);
  }
  expect(decode.map(({ batch, context }) => [batch, context])).toEqual([
    [1, 8],
    [3, 8],
    [1, 16],
    [3, 16],
  ]);
  expect(result.growth.map(({ batch, contexts }) => [batch, contexts])).toEqual([
    [1, [8, 16]],
    [3, [8, 16]],
  ]);
  for (const { ms, bytes, ofCopy } of decode) expect(ofCopy).toBeCloseTo(bytes / ms / 1e6 / limits.copyGBs, 9);
  expect(result.memory!.peakBytes).toBeGreaterThan(result.model.weightBytes);
  expect(step!.logprobMismatches).toBe(0);
  expect(step!.generateSeconds + step!.trainSeconds).toBeCloseTo(step!.seconds, 6);
  expect(train!.tokens).toBe(2 * (6 + 3));
  if (gpu().device.features.has('timestamp-query')) {
    expect(new Set(kernels.trace.map(({ phase }) => phase)).size).toBe(2);
    const [decoding, training] = [...new Set(spans.map(({ phase }) => phase))].map((phase) => ({
      spans: spans.filter((span) => span.phase === phase).length,
      dispatches: kernels.trace.reduce((sum, f) => sum + (f.phase === phase ? f.dispatches : 0), 0),
    }));
    // Four steps of decoding are traced for the mean of one.
    expect(decoding!.dispatches * 4).toBe(decoding!.spans);
    expect(training!.dispatches).toBe(training!.spans);
  }
});
