// Some training steps from nothing in a process of their own, and the hash of all that they end in.
// Not a measurement. Invariant: what is hashed follows from the order alone, and from neither robustness nor tracing.
import { createHash } from 'node:crypto';
import { defaultLora } from '../src/doctor.ts';
import { openGpu } from '../src/gpu/device.ts';
import { startTiming } from '../src/gpu/timing.ts';
import { loadFamilyWeights } from '../src/model/matrix-load.ts';
import { openModelFiles } from '../src/model/model-files.ts';
import type { BitsAnswer, BitsOrder } from './bits.ts';
import { answer, orderOf } from './child.ts';
import { openShape } from './models.ts';
import { makeTrainer, rollOut, samplerOf, trainOnce } from './steps.ts';

function hashOf(parts: Iterable<readonly [string, ArrayBufferView]>): string {
  const hash = createHash('sha256');
  for (const [name, { buffer, byteOffset, byteLength }] of [...parts].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(`${name}\n${byteLength}\n`).update(new Uint8Array(buffer, byteOffset, byteLength));
  }
  return hash.digest('hex');
}

const order = orderOf<BitsOrder>();
const { settings } = order;
const { promptTokens, newTokens, group } = settings;
const gpu = await openGpu({ robustness: order.robustness });
const files = await openModelFiles(openShape(order.shape).source);
const { model } = await loadFamilyWeights(gpu, files, order.family, { positions: promptTokens + newTokens });
const trainer = makeTrainer(gpu, model, defaultLora(settings.rank), settings);
const limits = { copyGBs: 0, matmulGflops: 0, matmulShape: '' };
const bench = { gpu, family: order.family, model, trainer, settings, limits };
const sampler = samplerOf(bench, { slots: group, cacheLength: promptTokens + newTokens, rows: promptTokens });
const timing = order.tracing ? startTiming(gpu) : null;
const { vocabSize } = model.architecture;
const tokens: number[] = [];
let logprobMismatches = 0;
for (let step = 1; step <= order.steps; step++) {
  timing?.phase(`step ${step}`);
  const prompt = Array.from({ length: promptTokens }, (_, t) => (t * 7919 + step * 104_729) % vocabSize);
  const drawn = await rollOut(sampler, prompt, group, newTokens, step);
  tokens.push(...drawn.ids.flat());
  // Large enough a rate that every step changes what the next one samples.
  logprobMismatches += await trainOnce(trainer, prompt, drawn, step, 1e-3);
  await timing?.take();
}
timing?.stop();
const { adapter, m, v } = await trainer.state();
const moments = [
  ...[...m].map(([name, values]) => [`m.${name}`, values] as const),
  ...[...v].map(([name, values]) => [`v.${name}`, values] as const),
];
answer({
  tokens: hashOf([['ids', Uint32Array.from(tokens)]]),
  adapter: hashOf(adapter),
  moments: hashOf(moments),
  logprobMismatches,
} satisfies BitsAnswer);
