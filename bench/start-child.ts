// One start, from nothing to the first sampled token, in a process of its own: device, checkpoint, pipelines, prefill.
// Not a warm measurement: everything happens once. Invariant: times count from the moment that the parent asked for the
// process, so Node's own start and the loading of modules are in them.
import { performance } from 'node:perf_hooks';
import { type Gpu, openGpu } from '../src/gpu/device.ts';
import { folderSource } from '../src/model/file-source-node.ts';
import { openModelFiles } from '../src/model/model-files.ts';
import { loadWarm } from '../src/model/warm-up.ts';
import type { GpuModel } from '../src/model/weights.ts';
import { createSampler } from '../src/rollout/sampler.ts';
import { answer, orderOf } from './child.ts';
import type { StartAnswer, StartOrder } from './start.ts';

const order = orderOf<StartOrder>();
const marks: StartAnswer['marks'] = [];
const mark = (name: string) => {
  marks.push({ name, seconds: (performance.timeOrigin + performance.now() - order.beganMs) / 1000 });
};

/** A prompt in one pass, and the token after it. */
async function firstToken(gpu: Gpu, model: GpuModel): Promise<number> {
  const { promptTokens, positions } = order;
  const { vocabSize } = model.architecture;
  const shape = { slots: 1, cacheLength: positions, rows: promptTokens };
  const sampler = createSampler(
    gpu,
    model,
    shape,
    { temperature: 0.6, topK: 20, topP: 0.95, minP: 0 },
    vocabSize,
    null,
  );
  const tokens = Array.from({ length: promptTokens }, (_, t) => (t * 7919 + 17) % vocabSize);
  const key = { seed: 1, step: 1, group: 0, member: 0, position: promptTokens };
  const [drawn] = await sampler.step([{ slot: 0, start: 0, tokens, key }]);
  return drawn!.id;
}

mark('program');
const gpu = await openGpu({ robustness: order.robustness });
mark('device');
const files = await openModelFiles(folderSource(order.folder));
mark('files');
let pipelines = 0;
const options = {
  positions: order.positions,
  onStage: mark,
  onPipelines: (_done: number, total: number) => {
    pipelines = total;
  },
};
const { model } = await loadWarm(gpu, files, order.family, options, async (stage, empty) => {
  await firstToken(stage, empty);
});
const id = await firstToken(gpu, model);
mark('token');
answer({ marks, pipelines, bytes: model.bytes, id } satisfies StartAnswer);
