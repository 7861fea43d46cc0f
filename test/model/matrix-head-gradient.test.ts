// The head's gradient in the matrix family against the portable one, on every adapter: products run in their plain twins
// where there are no subgroup matrices.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { allocate, readF32, release, upload } from '../../src/gpu/buffers.ts';
import { createRecorder } from '../../src/gpu/recorder.ts';
import { testValues } from '../../src/kernels/case-data.ts';
import { matrixFeature } from '../../src/kernels/matrix-index.ts';
import { adapterLayout } from '../../src/model/adapter-gpu.ts';
import { chooseRows, createHead, headChunks, recordLogits } from '../../src/model/head.ts';
import { recordLogprobs } from '../../src/model/head-draw.ts';
import { recordHeadBackward } from '../../src/model/head-gradient.ts';
import { resolveTargets } from '../../src/model/lora.ts';
import { matrixHeadElements, recordMatrixHeadBackward, runsMatrixHead } from '../../src/model/matrix-head-gradient.ts';
import { useMatrixFamily } from '../../src/model/matrix-weights.ts';
import { openModelFiles } from '../../src/model/model-files.ts';
import { type GpuModel, loadWeights } from '../../src/model/weights.ts';
import { createWorkspace } from '../../src/model/workspace.ts';
import { useGpu } from '../support/gpu.ts';
import { randomModel } from '../support/random-model.ts';

const gpu = useGpu();
const vocabulary = 317;
const rows = 90;
const temperature = 0.8;
let model: GpuModel;
let portable: GpuModel;

beforeAll(async () => {
  const files = await openModelFiles(randomModel());
  portable = await loadWeights(gpu(), files, { positions: 64 });
  const emulate = !gpu().device.features.has(matrixFeature as GPUFeatureName);
  ({ model } = await useMatrixFamily(gpu(), await loadWeights(gpu(), files, { positions: 64 }), emulate));
});

afterAll(() => {
  model.destroy();
  portable.destroy();
});

/** dL/d(output) of every third row of the pass, the head taking `perChunk` rows at a time. */
async function gradientOf(of: GpuModel, perChunk: number) {
  const arch = of.architecture;
  const layout = adapterLayout(arch, { rank: 4, alpha: 8, useRslora: false, targets: resolveTargets('all-linear') });
  const workspace = createWorkspace(gpu(), arch, layout, { rows, slots: 1, cacheLength: 64, training: true });
  const head = createHead(gpu(), arch, rows, vocabulary, arch.vocabSize * 4 * perChunk);
  const scratch = runsMatrixHead(of) ? allocate(gpu(), 'slices', matrixHeadElements(of, head) * 4) : null;
  const r = createRecorder(gpu());
  const count = rows / 3;
  const views = ['targets', 'stats', 'gradient'].map((label, i) => allocate(gpu(), label, count * [4, 16, 4][i]!));
  const [targets, stats, gradient] = views as [(typeof views)[0], (typeof views)[0], (typeof views)[0]];
  upload(gpu(), workspace.output.view, testValues(rows * arch.hiddenSize, 3));
  chooseRows(
    gpu(),
    r,
    head,
    Uint32Array.from({ length: count }, (_, i) => i * 3),
  );
  upload(
    gpu(),
    targets,
    Uint32Array.from({ length: count }, (_, i) => (i * 31) % vocabulary),
  );
  upload(gpu(), gradient, testValues(count, 4));
  for (const chunk of headChunks(head, count)) {
    recordLogits(r, of, workspace, head, chunk);
    recordLogprobs(r, head, chunk, targets, stats, 1 / temperature);
  }
  const shared = [head, count, targets, stats, gradient, 1 / temperature, vocabulary] as const;
  const back = workspace.backward!;
  if (scratch) {
    const [, ...rest] = shared;
    recordMatrixHeadBackward(r, of, workspace, back, head, scratch, ...rest);
  } else recordHeadBackward(r, of, workspace, ...shared);
  r.submit();
  const found = await readF32(gpu(), back.dx.view, rows * back.dx.stride);
  for (const view of views) release(gpu(), view);
  if (scratch) release(gpu(), scratch);
  head.destroy();
  workspace.destroy();
  return found;
}

test('the head of the matrix family gives the portable gradient but for f16 rounding, in chunks of any size the same bits', async () => {
  const wanted = await gradientOf(portable, 64);
  const found = await gradientOf(model, 64);
  let error = 0;
  let size = 0;
  for (let i = 0; i < wanted.length; i++) {
    error += (found[i]! - wanted[i]!) ** 2;
    size += wanted[i]! ** 2;
  }
  expect(size).toBeGreaterThan(0);
  expect(Math.sqrt(error / size)).toBeLessThan(2e-3);
  expect(await gradientOf(model, 7)).toEqual(found);
  const hidden = portable.architecture.hiddenSize;
  expect(found.subarray(hidden, 3 * hidden).every((value) => value === 0)).toBe(true);
});
