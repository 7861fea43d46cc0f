// The reductions of a step: block sums, norm and clip, and the tree's additions.
import { describe, expect, test } from 'vitest';
import { treeSchedule } from '../../src/grpo/tree.ts';
import { addInto, addIntoGrid } from '../../src/kernels/add-into.ts';
import { testValues } from '../../src/kernels/case-data.ts';
import { normBlock, normBlocks, normBlocksOf } from '../../src/kernels/norm-blocks.ts';
import { normFinish, normFinishParams } from '../../src/kernels/norm-finish.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification, floats, runKernel } from './run-kernel.ts';

const gpu = useGpu();

describeQualification(gpu, addInto);
describeQualification(gpu, normBlocks);
describeQualification(gpu, normFinish);

describe('the norm of a flat gradient', () => {
  test('has block sums that do not depend on where the block lies', async () => {
    const block = testValues(normBlock, 3);
    const params = { count: normBlock, offset: 0, blocks: 1, blockOffset: 0 };
    const alone = await runKernel(gpu(), normBlocks, params, [1, 1, 1], { x: block, partial: 1 });
    const x = testValues(normBlock * 3 + 5, 4);
    x.set(block, normBlock);
    const blocks = normBlocksOf(x.length);
    const all = { count: x.length, offset: 0, blocks, blockOffset: 0 };
    const { partial } = await runKernel(gpu(), normBlocks, all, [blocks, 1, 1], { x, partial: blocks });
    expect(partial![1]).toBe(alone['partial']![0]);
    expect(new Set(partial).size).toBe(blocks);
  });

  test.each([1, 2, 3, 5, 8, 13, 63, 64, 65, 129, 200])(
    'adds %i block sums in the order of the tree, to the bit',
    async (blocks) => {
      const partial = testValues(blocks, 7, 30).map(Math.abs);
      const sums = partial.slice();
      for (const { into, from } of treeSchedule(blocks)) sums[into] = Math.fround(sums[into]! + sums[from]!);
      const out = await runKernel(gpu(), normFinish, normFinishParams(blocks, 1), [1, 1, 1], { partial, clip: 2 });
      expect([...floats(out['partial']!)]).toEqual([...sums]);
    },
  );

  test('is not finite where the gradient is not, so that the host can refuse the update', async () => {
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 1e25]) {
      const x = testValues(1000, 5);
      x[777] = value;
      const params = { count: 1000, offset: 0, blocks: 1, blockOffset: 0 };
      const { partial } = await runKernel(gpu(), normBlocks, params, [1, 1, 1], { x, partial: 1 });
      const buffers = { partial: partial!, clip: 2 };
      const { clip } = await runKernel(gpu(), normFinish, normFinishParams(1, 1), [1, 1, 1], buffers);
      expect(Number.isFinite(floats(clip!)[0]!)).toBe(false);
    }
  });
});

test('additions keep -0 + -0 and are one f32 rounding each', async () => {
  const a = Float32Array.of(-0, 1, 1e-30, 16_777_216, 5);
  const b = Float32Array.of(-0, 2 ** -24, 1e-30, 1, -5, 9, 9, 9);
  const out = await runKernel(gpu(), addInto, { count: 5 }, addIntoGrid(5), { b, a });
  const expected = Float32Array.from(a, (value, i) => value + b[i]!);
  expect([...out['a']!]).toEqual([...new Uint32Array(expected.buffer)]);
});
