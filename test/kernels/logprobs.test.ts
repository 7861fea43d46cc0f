// Log-probs, entropy and their gradient: qualification, independence of the batch, and values that are no numbers.
import { describe, expect, test } from 'vitest';
import { testValues, withStride } from '../../src/kernels/case-data.ts';
import { logprobs, logprobsReference, noTarget, rowGrid, scaledLogits } from '../../src/kernels/logprobs.ts';
import { logprobsBackward, logprobsBackwardGrid } from '../../src/kernels/logprobs-backward.ts';
import { runCase } from '../../src/kernels/qualify.ts';
import { useGpu } from '../support/gpu.ts';
import { describeQualification, floats, runKernel } from './run-kernel.ts';

const gpu = useGpu();

describeQualification(gpu, logprobs);
describeQualification(gpu, logprobsBackward);

const vocabulary = 517;
const stride = 520;
const rows = 7;
const logits = testValues(rows * vocabulary, 5, 0.3);
const row = (r: number) => logits.subarray(r * vocabulary, (r + 1) * vocabulary);
const targets = Uint32Array.from({ length: rows }, (_, r) => r * 70);

/** Statistics [order.length, 4] as words, of the given rows in that order. */
async function statsOf(order: readonly number[], inverseTemperature = 1.25, rowOffset = 0) {
  const chosen = new Float32Array(order.length * vocabulary);
  order.forEach((r, i) => {
    chosen.set(row(r), i * vocabulary);
  });
  const wanted = new Uint32Array(rowOffset + order.length).fill(noTarget);
  wanted.set(
    Uint32Array.from(order, (r) => targets[r]!),
    rowOffset,
  );
  const { stats } = await runKernel(
    gpu(),
    logprobs,
    { rows: order.length, vocabulary, stride, rowOffset, inverseTemperature },
    rowGrid(order.length),
    { logits: withStride(chosen, order.length, vocabulary, stride, 1e30), targets: wanted, stats: wanted.length * 4 },
  );
  return stats!.subarray(rowOffset * 4);
}

describe('log-probs', () => {
  test('of a row have the same bits alone, in a batch of seven, in another order and at another offset', async () => {
    const batch = await statsOf([0, 1, 2, 3, 4, 5, 6]);
    const order = [4, 0, 6, 2, 5, 1, 3];
    const mixed = await statsOf(order, 1.25, 9);
    for (let r = 0; r < rows; r++) {
      const own = [...batch.subarray(r * 4, r * 4 + 4)];
      expect([...(await statsOf([r]))]).toEqual(own);
      const at = order.indexOf(r) * 4;
      expect([...mixed.subarray(at, at + 4)]).toEqual(own);
    }
  });

  test('shift with a constant added to all logits only by rounding', async () => {
    const shifted = logits.map((value) => value + 1e4);
    const { stats } = await runKernel(
      gpu(),
      logprobs,
      { rows, vocabulary, stride: vocabulary, rowOffset: 0, inverseTemperature: 1 },
      rowGrid(rows),
      { logits: shifted, targets, stats: rows * 4 },
    );
    for (let r = 0; r < rows; r++) {
      const reference = logprobsReference(shifted.subarray(r * vocabulary, (r + 1) * vocabulary), targets[r]!);
      const found = floats(stats!)[r * 4 + 2]!;
      expect(Math.abs(found - reference.values[2]) <= reference.bounds[2]).toBe(true);
    }
  });

  test.each([
    ['a NaN', Number.NaN],
    ['an Infinity', Number.POSITIVE_INFINITY],
    ['a -Infinity', Number.NEGATIVE_INFINITY],
  ])('of a row that holds %s are NaN, and those of its neighbours are not', async (_name, value) => {
    const spoilt = logits.slice();
    spoilt[3 * vocabulary + 400] = value;
    const { stats } = await runKernel(
      gpu(),
      logprobs,
      { rows, vocabulary, stride: vocabulary, rowOffset: 0, inverseTemperature: 1 },
      rowGrid(rows),
      { logits: spoilt, targets, stats: rows * 4 },
    );
    const bad = Array.from({ length: rows }, (_, r) => Number.isNaN(floats(stats!)[r * 4 + 2]!));
    expect(bad).toEqual([false, false, false, true, false, false, false]);
  });

  test('of a target beyond the vocabulary are NaN, and a row without a target is left alone', async () => {
    const { stats } = await runKernel(
      gpu(),
      logprobs,
      { rows: 3, vocabulary, stride: vocabulary, rowOffset: 0, inverseTemperature: 1 },
      rowGrid(3),
      { logits, targets: Uint32Array.of(vocabulary, noTarget, vocabulary - 1), stats: 12 },
    );
    const values = floats(stats!);
    expect(values[2]).toBeNaN();
    expect([...values.subarray(4, 8)]).toEqual([0, 0, 0, 0]);
    expect(values[10]).toBeLessThan(0);
  });
});

test('the gradient of the logits is that of the log-prob by finite differences, and sums to nearly zero', async () => {
  const inverseTemperature = 1.25;
  const { stats } = await runKernel(
    gpu(),
    logprobs,
    { rows: 1, vocabulary, stride: vocabulary, rowOffset: 0, inverseTemperature },
    rowGrid(1),
    { logits: row(2).slice(), targets: Uint32Array.of(40), stats: 4 },
  );
  const { logits: gradient } = await runKernel(
    gpu(),
    logprobsBackward,
    { rows: 1, vocabulary, stride4: stride / 4, rowOffset: 0, inverseTemperature },
    logprobsBackwardGrid(1, stride / 4),
    {
      targets: Uint32Array.of(40),
      stats: floats(stats!),
      gradient: Float32Array.of(2),
      logits: withStride(row(2), 1, vocabulary, stride),
    },
  );
  const found = floats(gradient!);
  expect(Math.abs(found.reduce((sum, value) => sum + value, 0))).toBeLessThan(1e-5);
  const value = (v: number, by: number) => {
    let sum = 0;
    row(2).forEach((logit, i) => {
      sum += Math.exp((logit + (i === v ? by : 0)) * inverseTemperature);
    });
    return (row(2)[40]! + (v === 40 ? by : 0)) * inverseTemperature - Math.log(sum);
  };
  for (const v of [0, 36, 40, 300, 516]) {
    const difference = (2 * (value(v, 1e-5) - value(v, -1e-5))) / 2e-5;
    expect(Math.abs(found[v]! - difference) <= 1e-6 + 1e-5 * Math.abs(difference)).toBe(true);
  }
  expect([...found.subarray(vocabulary)].map(Math.abs)).toEqual([0, 0, 0]);
});

test('a wrong reference is caught by the qualification: two rows swapped', async () => {
  const run = logprobs.cases()[1]!;
  const expected = run.expected['stats'];
  if (!expected || expected instanceof Uint32Array) throw new Error('stats are f32');
  const values = expected.values.slice();
  values.copyWithin(8, 12, 16);
  expect((await runCase(gpu(), logprobs, { ...run, expected: { stats: { ...expected, values } } })).passed).toBe(false);
  expect([...scaledLogits(Float32Array.of(3), 1 / 3)]).toEqual([Math.fround(3 * Math.fround(1 / 3))]);
});
