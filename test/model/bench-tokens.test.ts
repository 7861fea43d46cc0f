// The bench's comparison of sampled tokens between sampler, reference pass and trainer's pass: it finds nothing where
// nothing is wrong, and one bit where one is.
import { describe, expect, test } from 'vitest';
import { planMembers, type SampledMember } from '../../bench/batch-members.ts';
import {
  comparedTrainer,
  comparePasses,
  compareTokens,
  positionsFor,
  sampleBatch,
} from '../../bench/compare-tokens.ts';
import { openShape } from '../../bench/models.ts';
import { type TokenSettings, tokenSettings } from '../../bench/settings.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { runsFused, useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWeights } from '../../src/model/weights.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';

const gpu = useGpu();
const none = { logprobs: 0, entropies: 0 };

async function embedded(settings: TokenSettings) {
  const files = await openModelFiles(openShape('embedded').source);
  return loadWeights(gpu(), files, { positions: positionsFor(files.architecture.vocabSize, settings) });
}

describe('sampled tokens', () => {
  test('of the embedded shape have the same bits in every pass, in batches of 1, 3, 4, 16 and 64', async () => {
    const settings = tokenSettings(4e5, true);
    const model = await embedded(settings);
    const comparison = await compareTokens(gpu(), model, settings);
    model.destroy();
    expect(comparison.map(({ batch }) => batch)).toEqual([1, 3, 4, 16, 64]);
    for (const { batch, members, fullTokens, reference, trainer, earlier } of comparison) {
      expect({ batch, reference, trainer, differ: earlier.differ }).toEqual({
        ...{ batch, reference: none, trainer: none, differ: 0 },
      });
      // Slots are refilled, and every slot is at work for some of the time.
      expect(members).toBeGreaterThan(batch);
      expect(fullTokens).toBeGreaterThanOrEqual(batch);
      expect(earlier.tokens > 0).toBe(batch > 1);
    }
    const beyond = comparison.filter(({ batch }) => batch > 4).reduce((sum, { tokens }) => sum + tokens, 0);
    expect(beyond).toBeGreaterThanOrEqual(2100);
  });

  test('have the same bits where steps are sent ahead of their results', async () => {
    const settings: TokenSettings = {
      batches: [1, 5],
      promptTokens: [3, 70],
      newTokens: 9,
      batchTokens: 9,
      rank: 4,
    };
    const files = await openModelFiles(randomModel(3, { vocab_size: 646, max_position_embeddings: 1024 }));
    const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
    const loaded = await loadWeights(gpu(), files, { positions: positionsFor(646, settings) });
    const { model } = await useMatrixFamily(gpu(), loaded, emulate);
    expect(runsFused(gpu(), model)).toBe(true);
    const comparison = await compareTokens(gpu(), model, settings);
    model.destroy();
    for (const { reference, trainer, earlier, fullTokens } of comparison) {
      expect([reference, trainer, earlier.differ]).toEqual([none, none, 0]);
      expect(fullTokens).toBeGreaterThan(0);
    }
  });

  test('that carry one wrong bit, a NaN or another id are found in both passes', async () => {
    const settings: TokenSettings = {
      ...tokenSettings(4e5, true),
      promptTokens: [5, 40],
      newTokens: 6,
      batchTokens: 6,
    };
    const model = await embedded({ ...settings, batches: [3] });
    const trainer = comparedTrainer(gpu(), model, { ...settings, batches: [3] });
    const { sampled } = await sampleBatch(gpu(), model, trainer, settings, 3);
    const compare = (members: readonly SampledMember[]) => comparePasses(gpu(), model, trainer, members);
    const lastBit = (value: number) => {
      const words = new Uint32Array(Float32Array.of(value).buffer);
      words[0]! ^= 1;
      return new Float32Array(words.buffer)[0]!;
    };
    const changed = (member: number, t: number, change: (drawn: SampledMember['drawn'][number]) => object) =>
      sampled.map((one, i) =>
        i === member ? { ...one, drawn: one.drawn.map((d, at) => (at === t ? { ...d, ...change(d) } : d)) } : one,
      );
    expect(await compare(sampled)).toEqual({ reference: none, trainer: none });
    const oneLogprob = { logprobs: 1, entropies: 0 };
    const oneEntropy = { logprobs: 0, entropies: 1 };
    expect(await compare(changed(1, 2, ({ logprob }) => ({ logprob: lastBit(logprob) })))).toEqual({
      reference: oneLogprob,
      trainer: oneLogprob,
    });
    expect(await compare(changed(4, 0, ({ entropy }) => ({ entropy: lastBit(entropy) })))).toEqual({
      reference: oneEntropy,
      trainer: oneEntropy,
    });
    expect((await compare(changed(0, 1, () => ({ logprob: Number.NaN })))).trainer).toEqual(oneLogprob);
    const otherId = await compare(changed(2, 1, ({ id }) => ({ id: (id + 1) % 640 })));
    for (const { logprobs, entropies } of [otherId.reference, otherId.trainer]) {
      expect(logprobs).toBeGreaterThan(1);
      // The wrong id's own entropy is that of the distribution before it.
      expect(entropies).toBeGreaterThan(0);
    }
    trainer.destroy();
    model.destroy();
  });

  test.each([
    ['a large model on a GPU', 1.7e9, false],
    ['a large model on a software adapter', 6e8, true],
    ['a small model', 4e5, true],
  ])('are ragged and more than 2,100 in batches of 16 and 64 for %s', (_, parameters, software) => {
    const settings = tokenSettings(parameters, software);
    const members = [16, 64].map((batch) => planMembers(646, settings, batch));
    const tokens = members.flat().reduce((sum, { newTokens }) => sum + newTokens, 0);
    expect(tokens).toBeGreaterThanOrEqual(2100);
    expect(new Set(members[1]!.map(({ newTokens }) => newTokens)).size).toBeGreaterThan(10);
    expect(new Set(members[1]!.map(({ prompt }) => prompt.length)).size).toBeGreaterThan(10);
  });
});
