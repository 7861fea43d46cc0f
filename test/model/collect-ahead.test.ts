// Rollouts with decode steps sent ahead of their results, against the same rollouts a pass at a time: the same episodes,
// whatever is dropped after a stop and whoever takes a finished member's slot.
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadText } from '../../src/model/text.ts';
import { loadWeights } from '../../src/model/weights.ts';
import { collect } from '../../src/rollout/collect.ts';
import { createSampler } from '../../src/rollout/sampler.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';

const gpu = useGpu();

test('steps sent ahead change no episode, and every token that they draw is counted', async () => {
  const folder = fileURLToPath(new URL('../../fixtures/embedded-policy', import.meta.url));
  const text = await loadText(folderSource(folder));
  const files = await openModelFiles(randomModel(3, { vocab_size: 646, max_position_embeddings: 1024 }));
  const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
  const loaded = await loadWeights(gpu(), files, { positions: 400 });
  const { model } = await useMatrixFamily(gpu(), loaded, emulate);
  const sampler = createSampler(
    gpu(),
    model,
    { slots: 5, cacheLength: 330, rows: 128 },
    { temperature: 4, topK: 0, topP: 1, minP: 0 },
    646,
    null,
  );
  const { decode: ahead, ...passes } = sampler;
  expect(ahead).toBeTypeOf('function');
  const tasks = trainTasks(1, 3);
  const groups = tasks.map((task, group) => [0, 1].map((member) => ({ task, step: 1, group, member, seed: 4 })));
  const run = async (own: typeof passes | typeof sampler) => {
    let sent = 0;
    let drawn = 0;
    let dropped = 0;
    const step: typeof own.step = async (work) => {
      sent += 1;
      const results = await own.step(work);
      drawn += results.filter((one) => one !== null).length;
      return results;
    };
    const decode: typeof ahead = (rows) => {
      const decoding = ahead!(rows);
      const send: typeof decoding.send = async (count) => {
        const steps = await decoding.send(count);
        drawn += steps.length * rows.length;
        return steps;
      };
      return { ...decoding, send };
    };
    const episodes = await collect(
      groups,
      {
        temperature: 4,
        maxCompletionTokens: 30,
        maxToolRounds: 3,
        enableThinking: false,
        invalidCallObservation: 'Fehler',
        policy: 'base',
      },
      {
        sampler: { ...own, step, ...('decode' in own ? { decode } : {}) },
        // An untrained model seldom ends a turn: here every eleventh id does.
        text: { ...text, stopIds: Array.from({ length: 58 }, (_, i) => i * 11 + 3) },
        environment: createGermanEnvironment(),
        now: () => 0,
        onDropped: (count) => {
          dropped += count;
        },
      },
    );
    const kept = episodes.flat().flatMap(({ mask, discardedTokens }) => [...mask, discardedTokens]);
    return {
      sent,
      drawn,
      dropped,
      kept: kept.reduce((sum: number, n) => sum + n, 0),
      episodes: episodes.flat().map(({ sessionId, ...rest }) => rest),
    };
  };
  const single = await run(passes);
  const together = await run(sampler);
  expect(together.episodes).toEqual(single.episodes);
  expect(together.sent).toBeLessThan(single.sent);
  expect(together.dropped).toBeGreaterThan(0);
  expect(together.drawn).toBe(together.kept + together.dropped);
  expect(single).toMatchObject({ dropped: 0, drawn: together.kept });
  const lengths = new Set(together.episodes.map(({ ids }) => ids.length));
  expect(lengths.size).toBeGreaterThan(2);
  sampler.destroy();
  model.destroy();
});
