// The promise of one canonical forward: a token's log-prob has the same bits whoever computes it.
import { describe, expect, test } from 'vitest';
import { createTrainer } from '../../src/grpo/step.ts';
import { adamwDefaults } from '../../src/kernels/adamw-reference.ts';
import { lossDefaults } from '../../src/kernels/loss-terms.ts';
import { loadAdapter } from '../../src/model/adapter-files.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import type { TrainSequence } from '../../src/rollout/pack.ts';
import { createSampler, type Drawn, type SlotWork } from '../../src/rollout/sampler.ts';
import { goldenPath } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';

const gpu = useGpu();
const settings = { temperature: 0.8, topK: 40, topP: 0.95, minP: 0.02 };

async function open(limits?: number) {
  const files = await openModelFiles(folderSource(goldenPath('tiny-qwen3-tied')));
  const device =
    limits === undefined
      ? gpu()
      : {
          ...gpu(),
          identity: { ...gpu().identity, limits: { ...gpu().identity.limits, maxStorageBufferBindingSize: limits } },
        };
  const model = await loadWeights(device, files, { positions: 128 });
  const initial = await loadAdapter(folderSource(goldenPath('tiny-qwen3-tied-lora')), files.architecture);
  return { files, model, initial, layout: adapterLayout(files.architecture, initial.config) };
}

function trainerOf({ model, initial, layout }: Awaited<ReturnType<typeof open>>) {
  return createTrainer(
    gpu(),
    model,
    layout,
    initial,
    { rows: 600, sequences: 8, length: 128 },
    {
      loss: { ...lossDefaults, maskTruncated: false, maxCompletionLength: 100 },
      temperature: settings.temperature,
      adamw: adamwDefaults,
      maxGradNorm: 1,
      vocabulary: 300,
    },
  );
}

const prompts = [5, 9, 17, 2, 30].map((length, i) => Array.from({ length }, (_, t) => (t * 31 + i * 7) % 300));

/** Generates `count` tokens after each prompt, all prompts in one batch, or one by one. */
async function generate(
  model: GpuModel,
  trainer: ReturnType<typeof trainerOf>,
  which: number[],
  count: number,
  chunk: number,
) {
  const sampler = createSampler(
    gpu(),
    model,
    { slots: which.length, cacheLength: 128, rows: chunk },
    settings,
    300,
    trainer.adapter.layout,
  );
  sampler.use(trainer.adapter);
  const state = which.map((i, slot) => ({
    i,
    slot,
    pending: [...prompts[i]!],
    cached: 0,
    drawn: [] as Drawn[],
    ids: [...prompts[i]!],
  }));
  while (state.some((s) => s.drawn.length < count)) {
    let room = chunk;
    const work: (SlotWork & { s: (typeof state)[number] })[] = [];
    for (const s of state) {
      const take = Math.min(room, s.pending.length);
      if (take === 0 || s.drawn.length >= count) continue;
      const key =
        take === s.pending.length ? { seed: 7, step: 3, group: s.i, member: 1, position: s.ids.length } : null;
      work.push({ slot: s.slot, start: s.cached, tokens: s.pending.slice(0, take), key, s });
      room -= take;
    }
    const results = await sampler.step(work);
    for (const [n, { s, tokens }] of work.entries()) {
      s.pending.splice(0, tokens.length);
      s.cached += tokens.length;
      const drawn = results[n];
      if (!drawn) continue;
      s.drawn.push(drawn);
      s.ids.push(drawn.id);
      s.pending.push(drawn.id);
    }
  }
  sampler.destroy();
  return state.map(({ ids, drawn }) => ({ ids, drawn }));
}

function sequence(ids: number[], prompt: number): TrainSequence {
  return {
    ids,
    mask: ids.map((_, t) => (t < prompt ? 0 : 1)),
    sampled: ids.map(() => 0),
    advantage: 1,
    truncated: false,
  };
}

describe('one canonical forward', () => {
  test('decode, chunked prefill, batch sizes and the training pass give the same ids and the same log-prob bits', async () => {
    const opened = await open();
    const trainer = trainerOf(opened);
    const all = [0, 1, 2, 3, 4];
    const together = await generate(opened.model, trainer, all, 30, 200);
    const chunked = await generate(opened.model, trainer, all, 30, 7);
    const reversed = await generate(opened.model, trainer, [...all].reverse(), 30, 200);
    expect(chunked).toEqual(together);
    expect([...reversed].reverse()).toEqual(together);
    for (const i of all) expect((await generate(opened.model, trainer, [i], 30, 200))[0]).toEqual(together[i]);
    const scored = await trainer.score(together.map(({ ids }, i) => sequence(ids, prompts[i]!.length)));
    const shuffled = await trainer.score([4, 2, 0].map((i) => sequence(together[i]!.ids, prompts[i]!.length)));
    for (const i of all) {
      expect([...scored[i]!.logprobs]).toEqual(together[i]!.drawn.map((d) => d.logprob));
      expect([...scored[i]!.entropies]).toEqual(together[i]!.drawn.map((d) => d.entropy));
    }
    expect([...shuffled[0]!.logprobs]).toEqual([...scored[4]!.logprobs]);
    expect([...shuffled[2]!.logprobs]).toEqual([...scored[0]!.logprobs]);
    trainer.destroy();
    opened.model.destroy();
  });

  test('a model split over small bindings gives the same bits', async () => {
    const whole = await open();
    const split = await open(20_000);
    expect(split.model.embedding.parts.length).toBeGreaterThan(1);
    expect(split.model.layers[0]!.groups.gateUp.weight.parts.length).toBeGreaterThan(1);
    const one = trainerOf(whole);
    const two = trainerOf(split);
    const sequences = prompts.map((ids) => sequence([...ids, 11, 12, 13], ids.length));
    expect(await two.score(sequences)).toEqual(await one.score(sequences));
    for (const trainer of [one, two])
      await trainer.step({ groups: [sequences], update: 1, learningRate: 0.01, old: 'current' });
    expect(await two.state()).toEqual(await one.state());
  });

  test('two equal steps from equal state end in equal bytes, and a group split into micro-batches sums by the tree', async () => {
    const opened = await open();
    const groups = [prompts.slice(0, 3), prompts.slice(2, 5), prompts.slice(1, 3)].map((group) =>
      group.map((ids, n) => ({ ...sequence([...ids, 20 + n, 7, 8], ids.length), advantage: n - 1 })),
    );
    const run = async () => {
      const trainer = trainerOf(opened);
      for (const update of [1, 2]) await trainer.step({ groups, update, learningRate: 0.01, old: 'current' });
      const state = await trainer.state();
      trainer.destroy();
      return state;
    };
    const first = await run();
    expect(await run()).toEqual(first);
    expect([...first.v.values()].some((tensor) => tensor.some((value) => value > 0))).toBe(true);
  });
});
