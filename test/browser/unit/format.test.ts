// Numbers as the views show them.
import { describe, expect, it } from 'vitest';
import { axisNumbers, number } from '../../../browser-harness/format.ts';

describe('the numbers of an axis', () => {
  it.each([
    [
      [0, 0.5, 1],
      ['0', '0.5', '1.0'],
    ],
    [
      [0, 50, 100],
      ['0', '50', '100'],
    ],
    [
      [0, 0.05, 0.1, 0.15],
      ['0', '0.05', '0.10', '0.15'],
    ],
    [
      [0, 0.005, 0.01],
      ['0', '0.005', '0.010'],
    ],
    [
      [0, 0.0025, 0.005],
      ['0', '2.5e-3', '5e-3'],
    ],
    [
      [0, 0.0025, 0.005, 0.0075, 0.01],
      ['0', '0.0025', '0.0050', '0.0075', '0.0100'],
    ],
    [
      [0, 2e-6, 4e-6],
      ['0', '2e-6', '4e-6'],
    ],
    [
      [-0.2, -0.1, 0],
      ['-0.2', '-0.1', '0'],
    ],
    [[0], ['0']],
  ])('%j are told apart and have one number of digits', (values, texts) => {
    expect(axisNumbers(values)).toEqual(texts);
  });
});

describe('a number in a view', () => {
  it('is a dash where there is none, and never rounded to 0', () => {
    expect([null, undefined, Number.NaN, 0, 0.0004, 0.5, 123.456].map((value) => number(value))).toEqual([
      '–',
      '–',
      '–',
      '0',
      '4.00e-4',
      '0.500',
      '123.5',
    ]);
  });
});
