import { describe, expect, it } from 'vitest';
import { extractAnswer } from '../../src/evaluation/answers.ts';
import { canonicalDecimal, readGermanNumber } from '../../src/evaluation/decimal.ts';
import { scanNumbers } from '../../src/evaluation/number-scan.ts';

const read = (reply: string) => extractAnswer(reply, { thinkingOpenedByPrompt: false });

describe('extractAnswer', () => {
  it.each([
    ['Antwort: Janet verkauft 16 - 3 - 4 = 9 Eier und verdient 9 * 2 = 18 Dollar.', '18'],
    ['**Antwort:** 18', '18'],
    ['**Antwort**: 18 €', '18'],
    ['Endantwort (in Euro): 1.250', '1250'],
    ['Final answer: 18', '18'],
    ['Antwort:\n\n18 Dollar', '18'],
    ['Antwort: $18', '18'],
    ['Antwort: minus 5 Grad', '-5'],
    ['ANTWORT: 18', '18'],
    ['Antwort: 2 oder mehr', '2'],
  ])('reads the marked line %j as %s', (reply, value) => {
    expect(read(reply)).toMatchObject({ value, rule: 'antwort', contradictory: false });
  });

  it('does not take a heading of four hashes for an answer', () => {
    expect(read('#### Schritt 1\n16 - 3 = 13\n#### 2. Teil\nAntwort: 26')).toMatchObject({
      value: '26',
      rule: 'antwort',
      contradictory: false,
    });
  });

  it('does not take a calculation below an empty mark for the answer', () => {
    expect(read('Antwort:\nZuerst 16 - 3 = 13.\nAntwort: 26')).toMatchObject({ value: '26', contradictory: false });
  });

  it('reads no number out of a fraction, a root or a box that was cut off', () => {
    for (const reply of ['\\boxed{\\frac{1}{2}}', '\\boxed{\\sqrt{2}}', 'Also 17: \\boxed{17', 'Antwort: 3/4']) {
      expect(read(reply).value).toBe(null);
    }
  });

  it('skips list enumerators, and sees "oder" without a mark too', () => {
    expect(read('Es sind 18 Euro.\n3. Fertig').value).toBe('18');
    expect(read('Es sind 41 oder 42.')).toMatchObject({ value: '42', rule: 'last-number', contradictory: true });
  });

  it('reads composed and decomposed umlauts alike', () => {
    const reply = 'Die Lösung beträgt 12 Äpfel';
    expect(read(reply.normalize('NFD'))).toEqual(read(reply.normalize('NFC')));
    expect(read(reply.normalize('NFD')).rule).toBe('sentence');
  });

  it('takes time linear in the reply, also for hostile ones', () => {
    const hostile = [
      `Antwort: ${'1 000'.repeat(20_000)}`,
      'antwort '.repeat(20_000),
      '\\boxed{'.repeat(2000),
      '1,'.repeat(50_000),
    ];
    for (const reply of hostile) {
      const start = performance.now();
      read(reply);
      expect(performance.now() - start < 5000).toBe(true);
    }
  });
});

describe('readGermanNumber', () => {
  it.each([
    ['1.234.567', '1234567'],
    ['12.345,678', '12345.678'],
    ['1,234.50', '1234.5'],
    ['12345.678', '12345.678'],
    ['1.5', '1.5'],
    ['007', '7'],
    ['0.500', '0.5'],
    [',5', '0.5'],
    ['70\\,000', '70000'],
  ])('reads %j as %s', (raw, value) => {
    expect(readGermanNumber(raw, false)).toEqual({ value, ambiguous: false });
  });

  it.each(['12.03.2024', '1,2,3', '1.23.456', '1.234.56'])('reads %j as no number', (raw) => {
    expect(readGermanNumber(raw, false)).toBe(null);
  });

  it('has one zero', () => {
    expect(readGermanNumber('0,00', true)).toEqual({ value: '0', ambiguous: false });
    expect(canonicalDecimal('-0.0')).toBe('0');
  });

  it('keeps digits that a double would lose', () => {
    expect(canonicalDecimal('9007199254740993.0000000000000000010')).toBe('9007199254740993.000000000000000001');
  });
});

describe('scanNumbers', () => {
  const values = (text: string) => scanNumbers(text).map((t) => t.value);

  it('tells signs from operators and ranges', () => {
    expect(values('von -5 bis 3, 10 - 4, 10 -4, x = -2')).toEqual(['-5', '3', '10', '4', '10', '4', '-2']);
    expect(values('3-5 und 3–5 und 2 * 3')).toEqual([null, null, null, null, null, null]);
  });

  it('reads no number inside words', () => {
    expect(values('CO2, Q3, A-4, 5er und 12-Euro')).toEqual(['5', '12']);
    expect(values('1e3')).toEqual([null]);
  });
});
