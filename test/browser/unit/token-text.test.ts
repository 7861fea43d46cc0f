// Pieces of text for tokens whose bytes cut characters anywhere, and aligned turns.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { alignTurns } from '../../../src/inspect/align.ts';
import { countOutcomes, pairSides, type Side } from '../../../src/inspect/compare-items.ts';
import { byteMark, tokenPieces } from '../../../src/inspect/token-text.ts';
import type { Episode } from '../../../src/rollout/episode.ts';

/** Pieces of byte strings, one a token. */
function piecesOf(tokens: readonly (readonly number[])[]) {
  return tokenPieces(
    tokens.map((_, i) => i),
    (id) => Uint8Array.from(tokens[id]!),
    () => false,
  );
}

describe('token pieces', () => {
  it('marks the bytes of a character that is split, and shows it where it is complete', () => {
    const pieces = piecesOf([[0x61, 0xc3], [0xbc, 0x62], [0xf0, 0x9f], [0x8d], [0x9e]]);
    expect(pieces.map(({ text, opens, closes }) => [text, opens.map(byteMark).join(''), closes])).toEqual([
      ['a', '⟨C3⟩', null],
      ['üb', '', 'ü'],
      ['', '⟨F0⟩⟨9F⟩', null],
      ['', '⟨8D⟩', null],
      ['🍞', '', '🍞'],
    ]);
  });

  it('calls bytes invalid that never become a character, and goes on after them', () => {
    const pieces = piecesOf([[0xc3], [0x61], [0x80], [0xff, 0x62], [0xed, 0xa0, 0x80], [0xe2, 0x82]]);
    expect(pieces.map(({ text, invalid }) => [text, invalid])).toEqual([
      ['', [0xc3]],
      ['a', []],
      ['', [0x80]],
      ['b', [0xff]],
      ['', [0xed, 0xa0, 0x80]],
      ['', [0xe2, 0x82]],
    ]);
    expect(pieces.every(({ opens }) => opens.length === 0)).toBe(true);
  });

  it('an unfinished character ends at a control token', () => {
    const pieces = tokenPieces(
      [0, 1, 2],
      (id) => [Uint8Array.of(0xc3), Uint8Array.of(0x3c), Uint8Array.of(0xbc)][id]!,
      (id) => id === 1,
    );
    expect(pieces.map(({ text, invalid, control }) => [text, invalid, control])).toEqual([
      ['', [0xc3], false],
      ['<', [], true],
      ['', [0xbc], false],
    ]);
  });

  it('shows an id that the tokenizer does not have as a number', () => {
    expect(
      tokenPieces(
        [9999],
        () => null,
        () => false,
      )[0]!.text,
    ).toBe('⟨id 9999⟩');
  });

  it('joins to the text of the bytes, wherever valid UTF-8 is cut', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.array(fc.integer({ min: 1, max: 3 })), (text, cuts) => {
        const bytes = [...new TextEncoder().encode(text)];
        const tokens: number[][] = [];
        for (let at = 0, i = 0; at < bytes.length; i++) {
          const size = cuts[i % Math.max(1, cuts.length)] ?? 2;
          tokens.push(bytes.slice(at, at + size));
          at += size;
        }
        const pieces = piecesOf(tokens);
        expect(pieces.map((piece) => piece.text).join('')).toBe(text);
        expect(pieces.flatMap((piece) => piece.invalid)).toEqual([]);
      }),
    );
  });
});

const member = (prompt: number[], ...turns: number[][]): Episode => {
  const ids = [...prompt, ...turns.flat()];
  let at = prompt.length;
  const spans = turns.map((turn) => {
    const span: [number, number] = [at, at + turn.length];
    at += turn.length;
    return { span, stop: 'stop' as const, calls: [] };
  });
  return { ids, promptLength: prompt.length, turns: spans } as unknown as Episode;
};

describe('aligned turns', () => {
  it('starts every turn in one row, whatever came before, and finds the first difference of each', () => {
    const rows = alignTurns([member([1, 2], [3, 4, 5], [6, 7]), member([1, 2], [3, 9], [6, 7], [8])]);
    expect(rows.map(({ label, segments, differsAt }) => [label, segments, differsAt])).toEqual([
      [
        'Prompt',
        [
          [0, 2],
          [0, 2],
        ],
        null,
      ],
      [
        'Turn 1',
        [
          [2, 5],
          [2, 4],
        ],
        1,
      ],
      [
        'Turn 2',
        [
          [5, 7],
          [4, 6],
        ],
        null,
      ],
      ['Turn 3', [null, [6, 7]], null],
    ]);
  });

  it('a turn that is a beginning of another differs at its end', () => {
    expect(alignTurns([member([1], [2, 3]), member([1], [2, 3, 4])])[1]!.differsAt).toBe(2);
  });
});

describe('pairs of items', () => {
  const side = (success: boolean | null): Side => ({
    success,
    reward: null,
    tokens: 1,
    capped: false,
    answer: null,
    text: null,
    rollout: null,
  });
  it('counts wins of b, losses, ties, what one side lacks and what was not scored', () => {
    const a = new Map([
      ['1', side(false)],
      ['2', side(true)],
      ['3', side(true)],
      ['4', side(false)],
      ['5', side(true)],
      ['7', side(null)],
    ]);
    const b = new Map([
      ['1', side(true)],
      ['2', side(false)],
      ['3', side(true)],
      ['4', side(false)],
      ['6', side(true)],
      ['7', side(true)],
    ]);
    const pairs = pairSides(a, b);
    expect(pairs.map(({ outcome }) => outcome)).toEqual([
      'win',
      'loss',
      'both',
      'neither',
      'only-a',
      'unscored',
      'only-b',
    ]);
    expect(countOutcomes(pairs)).toEqual({
      win: 1,
      loss: 1,
      both: 1,
      neither: 1,
      'only-a': 1,
      'only-b': 1,
      unscored: 1,
    });
  });
});
