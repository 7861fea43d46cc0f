// The suggestion helper for mistyped names.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { editDistance, nearestName } from '../../src/lib/nearest.ts';
import { compareUtf8 } from '../../src/lib/utf8-order.ts';

describe('nearestName', () => {
  it.each([
    ['lora.rnak', ['lora.alpha', 'lora.rank'], 'lora.rank'],
    ['q_porj', ['k_proj', 'q_proj'], 'q_proj'],
    ['learningRate', ['learning_rate', 'steps'], 'learning_rate'],
    ['SEED', ['seed', 'steps'], 'seed'],
    ['zebra', ['rank', 'alpha'], null],
    ['x', [], null],
  ])('maps %s among %j to %s', (name, candidates, expected) => {
    expect(nearestName(name, candidates)).toBe(expected);
  });

  it('prefers the earlier of two candidates at the same distance', () => {
    expect(nearestName('gata', ['gate', 'data'])).toBe('gate');
  });

  it('counts a swap of neighbours as one edit, and is symmetric with zero only for equal names', () => {
    expect(editDistance('rnak', 'rank')).toBe(1);
    expect(editDistance('kitten', 'sitting')).toBe(3);
    const word = fc.string({ maxLength: 8 });
    fc.assert(
      fc.property(word, word, (a, b) => {
        const distance = editDistance(a, b);
        return (
          distance === editDistance(b, a) && (distance === 0) === (a === b) && distance <= Math.max(a.length, b.length)
        );
      }),
    );
  });
});

describe('compareUtf8', () => {
  it('orders as the bytes do, above U+FFFF too', () => {
    const text = fc.string({ unit: 'binary', maxLength: 6 });
    fc.assert(
      fc.property(text, text, (a, b) => {
        const bytes = Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b)));
        return Math.sign(compareUtf8(a, b)) === bytes && Math.sign(compareUtf8(`🦜${a}`, `🦜${b}`)) === bytes;
      }),
      {
        examples: [
          ['\uffee', '🦜'],
          ['🦜a', '🦝'],
          ['a', ''],
        ],
      },
    );
  });
});
