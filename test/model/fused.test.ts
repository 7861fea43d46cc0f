// The matrix family's fused pass, with products emulated where the adapter has no subgroup matrices: decoding, prefill,
// reference and training give one row the same bits, and the portable family's values but for 16-bit rounding.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readF32, upload } from '../../src/gpu/buffers.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { testValues } from '../../src/kernels/case-data.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { adapterLayout, allocateAdapter, type GpuAdapter } from '../../src/model/adapter-gpu.ts';
import { recordForward, sequencesBatch } from '../../src/model/forward.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../../src/model/head.ts';
import { resolveTargets } from '../../src/model/lora.ts';
import { useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import { createWorkspace } from '../../src/model/workspace.ts';
import { createSampler, type Drawn } from '../../src/rollout/sampler.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';
import { scoreRows } from '../support/score-rows.ts';

const gpu = useGpu();
const vocabulary = 317;
const settings = { temperature: 0.8, topK: 0, topP: 0.98, minP: 0 };
let model: GpuModel;
let portable: GpuModel;
let adapter: GpuAdapter;

beforeAll(async () => {
  const files = await openModelFiles(randomModel());
  portable = await loadWeights(gpu(), files, { positions: 256 });
  const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
  ({ model } = await useMatrixFamily(gpu(), await loadWeights(gpu(), files, { positions: 256 }), emulate));
  const config = { rank: 4, alpha: 8, useRslora: false, targets: resolveTargets('all-linear') };
  const layout = adapterLayout(model.architecture, config);
  adapter = { layout, views: allocateAdapter(gpu(), layout, 'adapter') };
  upload(gpu(), adapter.views.flat, testValues(layout.length, 5, 0.05));
});

afterAll(() => {
  model.destroy();
  portable.destroy();
});

const prompts = [70, 3, 65, 20].map((length, i) => Array.from({ length }, (_, t) => (t * 37 + i * 11) % vocabulary));
const key = (member: number, position: number) => ({ seed: 9, step: 1, group: 0, member, position });

/** Draws `count` tokens after each prompt of some members, by passes of a token or by decoding ahead. */
async function draw(members: readonly number[], count: number, ahead: boolean, active = adapter as GpuAdapter | null) {
  const shape = { slots: 4, cacheLength: 100, rows: 160 };
  const sampler = createSampler(gpu(), model, shape, settings, vocabulary, adapter.layout);
  sampler.use(active);
  const drawn: Drawn[][] = members.map(() => []);
  const first = await sampler.step(
    members.map((m, slot) => ({ slot, start: 0, tokens: prompts[m]!, key: key(m, prompts[m]!.length) })),
  );
  for (const [i, result] of first.entries()) drawn[i]!.push(result!);
  const next = (i: number) => {
    const position = prompts[members[i]!]!.length + drawn[i]!.length - 1;
    return { slot: i, position, token: drawn[i]!.at(-1)!.id, key: key(members[i]!, position + 1) };
  };
  if (ahead) {
    const decoding = sampler.decode!(members.map((_, i) => next(i)));
    const sent = [decoding.send(3), decoding.send(count - 4)];
    for (const steps of await Promise.all(sent)) {
      for (const row of steps) for (const [i, result] of row.entries()) drawn[i]!.push(result!);
    }
  } else {
    while (drawn[0]!.length < count) {
      const work = members.map((_, i) => {
        const { slot, position, token, key: drawKey } = next(i);
        return { slot, start: position, tokens: [token], key: drawKey };
      });
      for (const [i, result] of (await sampler.step(work)).entries()) drawn[i]!.push(result!);
    }
  }
  sampler.destroy();
  return drawn;
}

describe('the fused pass', () => {
  test('draws the same ids and log-probs a pass at a time, ahead, alone and among others', async () => {
    const together = await draw([0, 1, 2, 3], 12, false);
    expect(await draw([0, 1, 2, 3], 12, true)).toEqual(together);
    expect(await draw([2], 12, true)).toEqual([together[2]]);
    expect(await draw([3, 0, 1], 12, true)).toEqual([together[3], together[0], together[1]]);
    expect(new Set(together.flat().map(({ id }) => id)).size).toBeGreaterThan(10);
  });

  test('gives a trainer the log-probs that were sampled, with and without an adapter', async () => {
    for (const active of [adapter, null]) {
      const drawn = await draw([0, 1, 2, 3], 12, true, active);
      const sequences = drawn.map((row, i) => [...prompts[i]!, ...row.map(({ id }) => id)]);
      for (const training of [true, false]) {
        const scored = await scoreRows(gpu(), model, active, sequences, training, vocabulary, settings.temperature);
        for (const [i, row] of drawn.entries()) {
          const from = prompts[i]!.length - 1;
          const own = scored[i]!.slice(from, from + row.length);
          expect(own.map(({ logprob }) => logprob)).toEqual(row.map(({ logprob }) => logprob));
          expect(own.map(({ entropy }) => entropy)).toEqual(row.map(({ entropy }) => entropy));
        }
      }
    }
  });

  test("has the portable pass's logits within the rounding of activations and of the cache", async () => {
    const arch = model.architecture;
    const batch = sequencesBatch(prompts);
    const rows = batch.tokens.length;
    const logitsOf = async (of: GpuModel, fused: boolean) => {
      const workspace = createWorkspace(gpu(), arch, adapter.layout, {
        rows,
        slots: 4,
        cacheLength: 80,
        training: false,
        fused,
      });
      const head = createHead(gpu(), arch, rows);
      const r = createRecorder(gpu());
      recordForward(gpu(), r, of, workspace, adapter, batch);
      chooseRows(
        gpu(),
        r,
        head,
        Uint32Array.from({ length: rows }, (_, i) => i),
      );
      expect(headChunks(head, rows).length).toBe(1);
      recordLogits(r, of, workspace, head, { first: 0, rows });
      r.submit();
      const logits = await readF32(gpu(), head.logits.view, rows * arch.vocabSize);
      workspace.destroy();
      head.destroy();
      return logits;
    };
    const wanted = await logitsOf(portable, false);
    const found = await logitsOf(model, true);
    let error = 0;
    let size = 0;
    for (const [i, value] of wanted.entries()) {
      error += (value - found[i]!) ** 2;
      size += value ** 2;
    }
    // Two layers of products whose operands carry 11 bits.
    expect(Math.sqrt(error / size)).toBeLessThan(2e-3);
    expect(error).toBeGreaterThan(0);
  });
});
