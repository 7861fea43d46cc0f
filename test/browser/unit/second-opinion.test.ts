// The verdict of the second opinion: when two programs that each keep their bound may differ so, and when not.
import { expect, it } from 'vitest';
import { APART_LIMIT, agrees, type OpinionRow } from '../../../browser-harness/second-opinion.ts';

const row = (apart: number): OpinionRow => ({
  kernel: 'matmul',
  operations: 'matMul',
  cases: 1,
  values: 1,
  kernelWorst: 0.2,
  tfjsWorst: 0.2,
  apart,
  at: '',
});

it('agrees up to twice the bound, and never where a value is missing', () => {
  expect([0, 1.9, APART_LIMIT].map((apart) => agrees(row(apart)))).toEqual([true, true, true]);
  const beyond = [2.001, 2e4, Number.POSITIVE_INFINITY, Number.NaN];
  expect(beyond.map((apart) => agrees(row(apart)))).toEqual([false, false, false, false]);
});
