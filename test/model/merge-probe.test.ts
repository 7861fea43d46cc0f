// Public bug case D1 on the device: what a merge changed in answers and log-probs on a fixed probe set.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { MergeProbe } from '../../src/export/merge-audit.ts';
import { mergeToFolder } from '../../src/export/merge-node.ts';
import { decodeToF32 } from '../../src/lib/half.ts';
import { type LoadedAdapter, loadAdapter } from '../../src/model/adapter-files.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { initAdapter } from '../../src/model/lora.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { openPolicy } from '../../src/model/open-node.ts';
import { bytesOf, type TensorBytes } from '../../src/model/safetensors-write.ts';
import { probeMerge } from '../../workers/merge-probe-node.ts';
import { editTensors, type Files, goldenFiles } from '../support/checkpoint-files.ts';

const bf16 = goldenFiles('tiny-qwen3-tied');
let f32: Files;
let folder = '';

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'shaderl-probe-'));
  const widen = (t: TensorBytes): TensorBytes => ({
    ...t,
    dtype: 'F32',
    bytes: bytesOf(decodeToF32(t.bytes, 'BF16')),
  });
  f32 = await editTensors(bf16, 'model.safetensors', (tensors) => tensors.map(widen));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Merges the golden adapter, its B times a factor, into a base, and probes it. */
async function merge(name: string, base: Files, factor: number) {
  const files = await openModelFiles(memorySource(name, base));
  const lora = memorySource('lora', goldenFiles('tiny-qwen3-tied-lora'));
  const golden = await loadAdapter(lora, files.architecture);
  const scaled = [...golden.tensors].map(
    ([key, values]) => [key, key.endsWith('lora_B') ? values.map((v) => v * factor) : values] as const,
  );
  const adapter: LoadedAdapter = { ...golden, tensors: new Map(scaled) };
  return mergeToFolder(files, adapter, join(folder, name), (merged) => probeMerge(files, adapter, merged, null));
}

describe('D1: the probe set of a merge', () => {
  test('shows no change of answers, and of log-probs only rounding, where f32 weights keep the update', async () => {
    const { probe, verdict } = await merge('f32', f32, 1);
    expect(probe).toMatchObject({ set: 'ids', prompts: 8, answersChanged: 0 });
    expect(probe!.maxLogprobChange).toBeLessThan(1e-4);
    expect(probe!.meanAdapterEffect).toBeGreaterThan(1e-2);
    expect(verdict).toBe('equivalent');
  });

  test('shows that a bf16 merge of a small update changes log-probs by as much as the adapter does', async () => {
    const small = await merge('small', bf16, 2 ** -10);
    const { meanLogprobChange, meanAdapterEffect } = small.probe!;
    expect(meanAdapterEffect).toBeGreaterThan(0);
    expect(meanLogprobChange).toBeGreaterThan(meanAdapterEffect / 2);
    expect(small.verdict).toBe('not equivalent');
    const kept = await merge('kept', f32, 2 ** -10);
    expect(kept.probe!.meanLogprobChange).toBeLessThan(kept.probe!.meanAdapterEffect / 20);
    // The effect of the adapter apart from its base is no matter of the dtype that the base is stored in.
    expect(kept.probe!.meanAdapterEffect).toBe(meanAdapterEffect);
  });

  test('asks word problems through the chat template where the model has one', async () => {
    const policy = new URL('../../fixtures/embedded-policy', import.meta.url).pathname;
    const { files, text } = await openPolicy(policy, null);
    const config = { rank: 2, alpha: 4, useRslora: false, targets: ['q_proj' as const] };
    const fresh = initAdapter(files.architecture, config, 1);
    const adapter: LoadedAdapter = { ...fresh, notes: [], label: 'fresh', canary: null, sealed: false, zero: true };
    const output = join(folder, 'policy');
    const written = await mergeToFolder(files, adapter, output, (merged) => probeMerge(files, adapter, merged, text));
    // An adapter whose B is zero: the merged bytes are the base's, and so are all answers.
    expect(written.probe).toMatchObject({
      set: 'math-dev',
      prompts: 8,
      answersChanged: 0,
      maxLogprobChange: 0,
      meanAdapterEffect: 0,
    });
    expect(JSON.parse(readFileSync(join(output, 'merge-audit.json'), 'utf8'))).toEqual(written);
  });

  test('marks a merge that changes an answer as not equivalent, however small the lost update', async () => {
    const files = await openModelFiles(memorySource('f32', f32));
    const adapter = await loadAdapter(memorySource('lora', goldenFiles('tiny-qwen3-tied-lora')), files.architecture);
    const figures: MergeProbe = {
      device: 'none',
      set: 'ids',
      prompts: 8,
      answersChanged: 1,
      tokens: 1,
      meanLogprobChange: 0,
      maxLogprobChange: 0,
      meanAdapterEffect: 0,
    };
    const written = await mergeToFolder(files, adapter, join(folder, 'flipped'), async () => figures);
    expect(written.totals.relativeDeltaError).toBeLessThan(written.threshold);
    expect(written.verdict).toBe('not equivalent');
  });
});
