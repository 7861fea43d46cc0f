// The calculator's grammar, bounds and faults, and its arithmetic against big integers.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evaluateExpression, MAX_EXPRESSION_LENGTH } from '../../src/environments/german-expression.ts';

const outcome = (text: string) => {
  const { value, fault } = evaluateExpression(text);
  return fault ?? value;
};

describe('evaluateExpression', () => {
  it.each([
    ['58 * 83', 4814],
    ['2+3*4', 14],
    ['(2+3)*4', 20],
    ['10-4-3', 3],
    ['64/4/2', 8],
    ['2*-3', -6],
    ['2--3', 5],
    ['-(4-9)', 5],
    ['-2*-(-3)', -6],
    ['007', 7],
    [' ( 1 + 1 ) ', 2],
    ['0/-5', 0],
    ['-7/7', -1],
    ['9999999', 9_999_999],
  ])('gives the value of "%s"', (text, value) => {
    expect(Object.is(outcome(text), value)).toBe(true);
  });

  it.each([
    '',
    ' ',
    '+',
    '1+',
    '*2',
    '(1',
    '1)',
    '()',
    '1 2',
    '--3',
    '- -3',
    '+1',
    '1.5',
    '1,5',
    '1e3',
    '0x10',
    '2^3',
    '7%2',
  ])('refuses "%s" as no expression', (text) => expect(outcome(text)).toBe('syntax'));

  it.each(['2−1', '2×3', '２+2', '1\t+1', '1\n+1', '1\u00a0+1', '٣+1', 'Brot + 1', 'process.exit()'])(
    'takes ASCII digits, operators and spaces only: refuses "%s"',
    (text) => expect(outcome(text)).toBe('syntax'),
  );

  it('refuses division by zero and division that leaves a remainder', () => {
    expect([outcome('1/0'), outcome('1/(2-2)'), outcome('7/2'), outcome('-7/2')]).toEqual([
      ...['division-by-zero', 'division-by-zero'],
      ...['inexact-division', 'inexact-division'],
    ]);
  });

  it('bounds literals, intermediate values and the result', () => {
    expect(outcome('10000000')).toBe('too-large');
    expect(outcome('9999999+1')).toBe('too-large');
    expect(outcome('9999999*9999999-1')).toBe('too-large');
    expect(outcome(`0*${'9'.repeat(60)}`)).toBe('too-large');
    expect(outcome('-9999999-1')).toBe('too-large');
  });

  it('bounds the length and still reads an expression of the greatest length', () => {
    const longest = `${'('.repeat(31)}10${')'.repeat(31)}`;
    expect(longest).toHaveLength(MAX_EXPRESSION_LENGTH);
    expect(outcome(longest)).toBe(10);
    expect(outcome(`${longest} `)).toBe('too-long');
  });

  it('reports a fault of the syntax before one of the arithmetic, and the leftmost of the latter', () => {
    expect(outcome('1/0+')).toBe('syntax');
    expect(outcome('1/0+7/2')).toBe('division-by-zero');
    expect(outcome('7/2+1/0')).toBe('inexact-division');
  });

  it('computes sums and products as big integers do', () => {
    const value = fc.integer({ min: 0, max: 3000 });
    fc.assert(
      fc.property(value, value, value, (a, b, c) => {
        expect(outcome(`${a}-${b}*${c}`)).toBe(Number(BigInt(a) - BigInt(b) * BigInt(c)));
        expect(outcome(`(${a}-${b})*${c}`)).toBe(Number((BigInt(a) - BigInt(b)) * BigInt(c)));
      }),
      { numRuns: 300, seed: 1 },
    );
  });

  it('ends with a value or a fault on any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 80 }), (text) => {
        const { value, fault } = evaluateExpression(text);
        expect(fault !== undefined || Number.isSafeInteger(value)).toBe(true);
      }),
      { numRuns: 1000, seed: 2 },
    );
  });
});
