// AdamW on the GPU: qualification, and torch's five updates with clip, decay and a falling learning rate.
import { expect, test } from 'vitest';
import { adamw, adamwGrid } from '../../src/kernels/adamw.ts';
import { adamwScalars } from '../../src/kernels/adamw-reference.ts';
import { normBlocks } from '../../src/kernels/norm-blocks.ts';
import { normFinish, normFinishParams } from '../../src/kernels/norm-finish.ts';
import { goldenData, maxDifference, readGolden } from '../support/golden.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification, floats, runKernel } from './run-kernel.ts';

const gpu = useGpu();

describeQualification(gpu, adamw);

test('five updates land within 1e-6 of torch: weights, moments and the norm before clipping', async () => {
  const file = readGolden('adamw.safetensors');
  const golden = (name: string) => Float32Array.from(goldenData(file, name));
  const number = (name: string) => file.metadata[name] as number;
  const [beta1, beta2] = file.metadata['betas'] as [number, number];
  const options = { beta1, beta2, eps: number('eps'), weightDecay: number('weight_decay') };
  let weights = golden('w.0');
  const count = weights.length;
  let m = new Float32Array(count);
  let v = new Float32Array(count);
  for (let step = 1; step <= 5; step++) {
    const gradient = golden(`grad.${step}`);
    const blockParams = { count, offset: 0, blocks: 1, blockOffset: 0 };
    const { partial } = await runKernel(gpu(), normBlocks, blockParams, [1, 1, 1], { x: gradient, partial: 1 });
    const finish = normFinishParams(1, number('max_grad_norm'));
    const norms = await runKernel(gpu(), normFinish, finish, [1, 1, 1], { partial: partial!, clip: 2 });
    const clip = floats(norms['clip']!);
    const wanted = golden(`norm.${step}`)[0]!;
    expect(Math.abs(clip[0]! - wanted) <= 1e-6 * wanted).toBe(true);
    const scalars = adamwScalars(step, goldenData(file, `lr.${step}`)[0]!, options);
    const buffers = { clip, gradient, weights, m, v };
    const out = await runKernel(gpu(), adamw, { count, offset: 0, ...scalars }, adamwGrid(count), buffers);
    [weights, m, v] = [floats(out['weights']!), floats(out['m']!), floats(out['v']!)];
    expect(maxDifference(weights, golden(`w.${step}`)) <= 1e-6).toBe(true);
    expect(maxDifference(m, golden(`m.${step}`)) <= 1e-6).toBe(true);
    expect(maxDifference(v, golden(`v.${step}`)) <= 1e-6).toBe(true);
  }
});

test('an offset updates its own part alone, with the bits that the part has by itself', async () => {
  const scalars = adamwScalars(3, 1e-3);
  const part = Float32Array.from({ length: 70 }, (_, i) => Math.sin(i + 1));
  const whole = new Float32Array(200).fill(0.5);
  whole.set(part, 64);
  const clip = Float32Array.of(1, 0.7);
  const run = (values: Float32Array<ArrayBuffer>, offset: number) =>
    runKernel(gpu(), adamw, { count: 70, offset, ...scalars }, adamwGrid(70), {
      clip,
      gradient: values.slice(),
      weights: values.slice(),
      m: values.slice(),
      v: values.map(Math.abs),
    });
  const alone = await run(part, 0);
  const inside = await run(whole, 64);
  for (const name of ['weights', 'm', 'v']) {
    expect([...inside[name]!.subarray(64, 134)]).toEqual([...alone[name]!]);
    expect(floats(inside[name]!).filter((value) => value === 0.5).length).toBe(130);
  }
});
