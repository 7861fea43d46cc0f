// Published bugs, group F (text): streaming decode of byte-level pieces, and NFC. Ids by the real Qwen3 tokenizer.
import { describe, expect, test } from 'vitest';
import { createStreamDecoder } from '../../src/model/stream-decoder.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';

const text = await qwen3Text();

describe('F1: streaming decode of multi-byte characters', () => {
  const stream = (ids: number[]) => {
    const decoder = createStreamDecoder(text, { hiddenIds: [...text.stopIds, ...text.endIds] });
    const pushed = ids.map((id) => decoder.push(id));
    return { pushed, end: decoder.end(), damaged: decoder.damaged() };
  };

  test('half a character alone decodes to U+FFFD', () => {
    expect(text.encodeContent('🦜')).toEqual([123918, 250]);
    expect(text.decode([123918])).toBe('\ufffd');
    expect(text.decode([250])).toBe('\ufffd');
  });

  test('123918 | 250 | 151645: nothing, then the emoji', () => {
    expect(stream([123918, 250, 151645])).toEqual({ pushed: ['', '🦜', ''], end: '', damaged: false });
  });

  test('123918 | 151645: one U+FFFD at the end, flagged', () => {
    const { pushed, end, damaged } = stream([123918, 151645]);
    expect(pushed.join('') + end).toBe('\ufffd');
    expect(pushed[0]).toBe('');
    expect(damaged).toBe(true);
  });

  test('a U+FFFD is not a way back to ids', () => {
    expect(text.encodeContent('\ufffd')).toEqual([5691]);
    expect(stream([5691])).toEqual({ pushed: ['\ufffd'], end: '', damaged: false });
  });

  test('123918 | 220 | 16: invalid bytes before a space do not crash', () => {
    const { pushed, end, damaged } = stream([123918, 220, 16]);
    expect(pushed).toEqual(['', '\ufffd ', '1']);
    expect(end).toBe('');
    expect(damaged).toBe(true);
  });

  test.each([
    ['ü', 2391],
    ['ß', 7997],
    ['ẞ', 149975],
    ['€', 15056],
  ])('%s is the single piece %i', (character, id) => {
    expect(text.encodeContent(character)).toEqual([id]);
    expect(stream([id]).pushed).toEqual([character]);
  });
});

describe('F2: NFC normalisation', () => {
  test.each([
    ['Mu\u0308nchen', [44, 51831]],
    ['u\u0308ber', [48985]],
    ['A\u0308pfel', [86975, 15897, 301]],
    ['Gro\u0308ße', [6464, 78940]],
  ])('%j is composed before it is encoded', (decomposed, expected) => {
    expect(text.encodeContent(decomposed)).toEqual(expected);
    expect(text.encodeTrusted(decomposed)).toEqual(expected);
    expect(text.renderPrompt({ messages: [{ role: 'user', content: decomposed }] }).slice(3, -5)).toEqual(expected);
  });

  test('sampled ids of a decomposed ü decode to it, and encoding the text would give another sequence', () => {
    const sampled = [84, 136, 230];
    expect(text.decode(sampled)).toBe('u\u0308');
    expect(text.encodeContent('u\u0308')).not.toEqual(sampled);
  });

  test('normalisation does not cut across added tokens', () => {
    expect(text.encodeTrusted('u<|im_end|>\u0308')).toEqual([84, 151645, 136, 230]);
  });
});
