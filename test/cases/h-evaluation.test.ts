// Public bug cases H: evaluation of German math answers, paired statistics, reasoning that never ended.
// Each case is tested as published and as a whole kind (generated spellings, other items), not as one string.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { extractAnswer } from '../../src/evaluation/answers.ts';
import { canonicalDecimal } from '../../src/evaluation/decimal.ts';
import { classify } from '../../src/evaluation/outcomes.ts';
import { clusteredStandardError, exactMcNemar, pairedBootstrap } from '../../src/evaluation/statistics.ts';

const read = (reply: string) => extractAnswer(reply, { thinkingOpenedByPrompt: false });
const judge = (reply: string, gold: string, options: { capped?: boolean; thinkingOpenedByPrompt?: boolean } = {}) =>
  classify({
    extracted: extractAnswer(reply, { thinkingOpenedByPrompt: options.thinkingOpenedByPrompt ?? false }),
    gold,
    capped: options.capped ?? false,
    replyLength: reply.normalize('NFC').length,
    infrastructure: null,
  });

/** A number with German thousands and decimals, spelled with the given separators. */
function spell(whole: number, fraction: string, group: string, comma: string): string {
  const digits = String(whole).replace(/\B(?=(\d{3})+$)/g, group);
  return fraction === '' ? digits : `${digits}${comma}${fraction}`;
}

describe('H1: German numbers in MGSM answers', () => {
  it.each([
    ['Antwort: 1.234', '1234'],
    ['Antwort: 1.200', '1200'],
    ['Antwort: 18,00 €', '18'],
    ['Antwort: -5', '-5'],
    ['Antwort: −5', '-5'],
    ['Antwort: 12 Äpfel zu je 3 €', '12'],
    ['Antwort: 3 (von 10)', '3'],
    ['Antwort: 70 000', '70000'],
    ['Antwort: 70\u00A0000', '70000'],
    ['Antwort: 70\u202F000', '70000'],
    ['Antwort: 70\u2009000', '70000'],
    ['Die Antwort lautet 42.', '42'],
    ['Die Antwort lautet: **42**', '42'],
    ['Die Antwort ist 1.234,50 €', '1234.5'],
    ['Antwort: 0,75', '0.75'],
    ['Antwort: 1234,-', '1234'],
  ])('reads %j as %s', (reply, right) => {
    expect(read(reply)).toMatchObject({ value: right, ambiguous: false, contradictory: false });
  });

  it('reads a comma before exactly three digits as thousands, and says that it is ambiguous', () => {
    expect(read('Antwort: 1,234')).toMatchObject({ value: '1234', ambiguous: true });
    expect(read('Antwort: 0,750')).toMatchObject({ value: '0.75', ambiguous: false });
    expect(read('Antwort: 1,234,567')).toMatchObject({ value: '1234567', ambiguous: false });
  });

  it('keeps the span of what it read', () => {
    const reply = 'Rechnung: 3 * 4.\nAntwort: −1.234,50 €';
    const { span } = read(reply);
    expect(reply.slice(...span!)).toBe('−1.234,50');
  });

  it('reads every German spelling of a number as that number', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2_000_000_000 }),
        fc.oneof(fc.constant(''), fc.stringMatching(/^\d{1,2}$/), fc.stringMatching(/^\d{4,6}$/)),
        fc.constantFrom('', '.', ' ', '\u00A0', '\u202F', '\u2009', "'"),
        fc.constantFrom('', '-', '−'),
        fc.constantFrom('', ' €', ' Äpfel', '.', '**', ' kg.'),
        (whole, fraction, group, sign, tail) => {
          const gold = canonicalDecimal(`${sign === '' ? '' : '-'}${whole}${fraction === '' ? '' : `.${fraction}`}`);
          const found = read(`Antwort: ${sign}${spell(whole, fraction, group, ',')}${tail}`);
          expect(found).toMatchObject({ value: gold, rule: 'antwort', ambiguous: false });
        },
      ),
      { seed: 1, numRuns: 2000 },
    );
  });
});

describe('H2: the last number is no comma, time, grid or currency string', () => {
  it.each([
    ['The answer is 72, in total, so the farmer earns that much.', '72', 'sentence'],
    ['The total is 72 clips, altogether.', '72', 'last-number'],
    ['So the total of the order is $29.00.', '29', 'last-number'],
    ['\\boxed{$9{,}500}', '9500', 'boxed'],
    ['\\boxed{8,000}', '8000', 'boxed'],
    ['\\boxed{\\text{18 Euro}}', '18', 'boxed'],
    ['\\boxed{17} und damit \\boxed{18}', '18', 'boxed'],
    ['#### 1,000.', '1000', 'hashes'],
  ])('reads %j as %s by rule %s', (reply, value, rule) => {
    expect(read(reply)).toMatchObject({ value, rule, contradictory: false });
  });

  it.each(['the meeting is at 7:30', 'the grid is 2x3', '#### ,', 'am 12.03.2024', 'in CO2, COVID-19'])(
    'finds no answer in %j',
    (reply) => {
      expect(read(reply)).toMatchObject({ value: null, rule: 'none', span: null });
    },
  );

  it('takes the last number before a compound, and compares 29.00 and 29 as equal', () => {
    expect(read('Es sind 12 Gäste, sie kommen um 7:30 Uhr.').value).toBe('12');
    expect(judge('Das macht $29.00.', canonicalDecimal('29')!)).toBe('correct');
  });

  it('prefers a box to #### to Antwort to a sentence to the last number', () => {
    const parts = [
      ['\\boxed{42}', 'boxed'],
      ['#### 42', 'hashes'],
      ['Antwort: 42', 'antwort'],
      ['Die Antwort ist 42.', 'sentence'],
      ['Insgesamt 42 Stück.', 'last-number'],
    ] as const;
    for (let i = 0; i < parts.length; i++) {
      const reply = parts.slice(i).map(([text]) => text);
      expect(read(reply.join('\n')).rule).toBe(parts[i]![1]);
      expect(read(reply.reverse().join('\n')).rule).toBe(parts[i]![1]);
    }
  });
});

describe('H6: paired data are tested as pairs', () => {
  // 20 items; A right on 1-10, B right on 1-15.
  const samples = Array.from({ length: 20 }, (_, i) => ({
    cluster: `item ${i + 1}`,
    a: i < 10 ? 1 : 0,
    b: i < 15 ? 1 : 0,
  }));

  it('gives the published difference, paired error, interval and exact test', () => {
    const result = pairedBootstrap(samples, { seed: 42 });
    expect(result).toMatchObject({ difference: 0.25, resamples: 10_000, seed: 42, items: 20, samples: 20 });
    expect(Math.abs(result.standardError! - 0.0968) <= 0.002).toBe(true);
    expect(Math.abs(result.interval!.low - 0.1) <= 1e-12).toBe(true);
    expect(Math.abs(result.interval!.high - 0.45) <= 1e-12).toBe(true);
    expect(exactMcNemar(5, 0)).toMatchObject({ pValue: 0.0625, discordant: 5 });
  });

  it('differs from the unpaired interval that two separate draws would give', () => {
    const unpaired = Math.sqrt((0.5 * 0.5) / 20 + (0.75 * 0.25) / 20);
    expect(Math.abs(unpaired - 0.1479) <= 5e-5).toBe(true);
    const { interval, standardError } = pairedBootstrap(samples, { seed: 7 });
    expect(standardError! < 0.75 * unpaired).toBe(true);
    expect(interval!.low > 0).toBe(true);
  });

  it('gives no interval for fewer than two paired items', () => {
    expect(pairedBootstrap(samples.slice(0, 1), { seed: 1 })).toMatchObject({
      interval: null,
      items: 1,
      difference: 0,
    });
    expect(pairedBootstrap([], { seed: 1 }).interval).toBe(null);
  });
});

describe('H8: samples of one item are not independent', () => {
  const questions = [1, 1, 0, 0];
  const samples = questions.flatMap((value, q) => Array.from({ length: 5 }, () => ({ cluster: `q${q}`, value })));

  it('gives the published naive and clustered errors, with both counts', () => {
    const error = clusteredStandardError(samples)!;
    expect(Math.abs(error.naive - 0.1118) <= 5e-5).toBe(true);
    expect(Math.abs(error.clustered - 0.25) <= 1e-12).toBe(true);
    expect(error).toMatchObject({ items: 4, samples: 20, mean: 0.5 });
  });

  it('does not narrow the bootstrap interval when every sample is repeated', () => {
    const once = questions.map((b, q) => ({ cluster: `q${q}`, a: 0, b }));
    const repeated = samples.map(({ cluster, value }) => ({ cluster, a: 0, b: value }));
    const [one, five] = [pairedBootstrap(once, { seed: 3 }), pairedBootstrap(repeated, { seed: 3 })];
    expect(five.interval).toEqual(one.interval);
    expect([one.samples, five.samples, five.items]).toEqual([4, 20, 4]);
  });

  it('counts item 17 in German and in English as one cluster', () => {
    const samples = ['de', 'en'].flatMap(() =>
      [16, 17].map((n) => ({ cluster: `mgsm-${n}`, a: 0, b: n === 17 ? 1 : 0 })),
    );
    expect(pairedBootstrap(samples, { seed: 3 })).toMatchObject({ items: 2, samples: 4 });
  });
});

describe('H9: no answer is taken from reasoning', () => {
  it('grades only the text after the last closing tag', () => {
    expect(judge('<think>\n17+25 = 42, wait', '42', { capped: true })).toBe('truncated');
    expect(judge('<think>\n17+25 = 42, wait', '42')).toBe('no_answer');
    expect(judge('<think>\n...42...</think>\n\nAntwort: 41', '42')).toBe('wrong');
    expect(judge('...42...</think>\n\nAntwort: 41', '42', { thinkingOpenedByPrompt: true })).toBe('wrong');
    expect(judge('17+25 = 42, wait', '42', { thinkingOpenedByPrompt: true })).toBe('no_answer');
    expect(judge('<think>\nAntwort: 41</think>\nAntwort: 42', '42')).toBe('correct');
    expect(judge('<think>a</think>Antwort: 42 <think>oder doch', '42')).toBe('no_answer');
  });

  it('never reads a number of the reasoning, whatever it says', () => {
    fc.assert(
      fc.property(fc.constantFrom('Antwort: 7', '\\boxed{7}', '#### 7', 'also 7'), fc.boolean(), (inside, opened) => {
        const open = opened ? '' : '<think>\n';
        const options = { thinkingOpenedByPrompt: opened };
        expect(extractAnswer(`${open}${inside}`, options).value).toBe(null);
        expect(extractAnswer(`${open}${inside}\n</think>\n\n`, options).value).toBe(null);
        expect(extractAnswer(`${open}${inside}\n</think>\n\nAntwort: 8`, options).value).toBe('8');
      }),
    );
  });

  it('does not trust a number that the limit may have cut, nor the last one of an unfinished calculation', () => {
    expect(judge('Antwort: 4', '4', { capped: true })).toBe('truncated');
    expect(judge('Antwort: 4\nDenn', '4', { capped: true })).toBe('correct');
    expect(judge('Erst sind es 42 Äpfel, dann', '42', { capped: true })).toBe('truncated');
  });
});

describe('H11: a zero says why', () => {
  it.each([
    ['Antwort: 41 oder 42', 'contradictory'],
    ['Antwort: 41 Äpfel oder 42 Äpfel', 'contradictory'],
    ['about 7', 'wrong'],
    ['', 'no_answer'],
    ['Ich weiß es nicht.', 'no_answer'],
    ['Antwort:', 'no_answer'],
    ['16 - 3 = 13. Antwort:', 'no_answer'],
    ['Antwort: 42\nAntwort: 43', 'contradictory'],
    ['Antwort: 42\nAntwort: 42,0', 'correct'],
    ['#### 42\nAntwort: 43', 'contradictory'],
    ['Antwort: 41', 'wrong'],
    ['Antwort: 42', 'correct'],
  ])('classifies %j as %s', (reply, outcome) => {
    expect(judge(reply, '42')).toBe(outcome);
  });

  it('keeps a failed service apart from every other class', () => {
    const extracted = read('Antwort: 42');
    const sample = { extracted, gold: '42', capped: true, replyLength: 11, infrastructure: 'socket closed (1006)' };
    expect(classify(sample)).toBe('infrastructure');
  });
});
