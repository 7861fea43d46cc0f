// Pipelines ahead of time: a rehearsal finds those that the work uses, and compiling them first changes no bit.
import { expect, test } from 'vitest';
import { type Gpu, openGpu } from '../../src/gpu/device.ts';
import { compileAhead, type PipelineUse, pipelinesOf } from '../../src/gpu/pipeline.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { KernelError } from '../../src/lib/errors.ts';
import { folderSource } from '../../src/model/file-source-node.ts';
import { loadFamilyWeights } from '../../src/model/matrix-load.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { loadWarm, pipelinesOfWork } from '../../src/model/warm-up.ts';
import type { GpuModel } from '../../src/model/weights.ts';
import { createSampler } from '../../src/rollout/sampler.ts';
import { goldenPath } from '../support/golden.ts';

const folder = goldenPath('tiny-qwen3-tied');
const keys = (uses: readonly PipelineUse[]) =>
  uses.map(({ kernel, constants }) => `${kernel.name} ${JSON.stringify(constants)}`).sort();

/** Prefill of five tokens and two further ones; the tokens drawn. */
async function work(gpu: Gpu, model: GpuModel): Promise<number[]> {
  const settings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
  const sampler = createSampler(gpu, model, { slots: 1, cacheLength: 8, rows: 5 }, settings, 64, null);
  const drawn: number[] = [];
  for (let start = 0; drawn.length < 3; start = 4 + drawn.length) {
    const tokens = drawn.length === 0 ? [3, 1, 4, 1, 5] : [drawn.at(-1)!];
    const key = { seed: 1, step: 0, group: 0, member: 0, position: start + tokens.length };
    const [next] = await sampler.step([{ slot: 0, start, tokens, key }]);
    drawn.push(next!.id);
  }
  return drawn;
}

test('a rehearsal finds exactly the pipelines that the work then uses, and reads no weight', async () => {
  const files = await openModelFiles(folderSource(folder));
  const gpu = await openGpu();
  const other = await openGpu();
  try {
    const uses = await pipelinesOfWork(gpu, files, 'portable', 8, async (stage, model) => {
      await work(stage, model);
    });
    expect(uses.length).toBeGreaterThan(8);
    expect(pipelinesOf(gpu)).toEqual([]);
    const told: number[] = [];
    await compileAhead(gpu, uses, (done) => told.push(done));
    expect(told.at(-1)).toBe(uses.length);
    const ready = keys(pipelinesOf(gpu));
    const { model } = await loadFamilyWeights(gpu, files, 'portable', { positions: 8 });
    const ahead = await work(gpu, model);
    expect(keys(pipelinesOf(gpu))).toEqual(ready);
    const stages: string[] = [];
    const options = { positions: 8, onStage: (stage: string) => stages.push(stage) };
    const warm = await loadWarm(other, files, 'portable', options, async (stage, empty) => {
      await work(stage, empty);
    });
    expect(stages.sort()).toEqual(['pipelines', 'weights']);
    expect(keys(pipelinesOf(other))).toEqual(ready);
    expect(await work(other, warm.model)).toEqual(ahead);
  } finally {
    gpu.destroy();
    other.destroy();
  }
});

test('a pipeline that the device refuses is an error that names it', async () => {
  const gpu = await openGpu();
  try {
    const wrong = { kernel: matmul, constants: { NO_SUCH_CONSTANT: 1 } };
    const failure = compileAhead(gpu, [wrong]);
    await expect(failure).rejects.toThrow(KernelError);
    await expect(failure).rejects.toThrow(/compiling matmul\|.*NO_SUCH_CONSTANT/);
  } finally {
    gpu.destroy();
  }
});
