// Published bugs, group B: mask lengths, the loss divisor, stop ids and padding.
import { describe, expect, test } from 'vitest';
import type { Episode, TokenSource } from '../../src/rollout/episode.ts';
import { lossMask, padRows } from '../../src/rollout/loss-mask.ts';
import { appendSampled, appendSuffix, checkStream, createStream } from '../../src/rollout/stream.ts';

const count = (mask: readonly number[]) => mask.reduce((sum, entry) => sum + entry, 0);
type MaskedRow = Pick<Episode, 'ids' | 'mask' | 'turns'>;

describe('B1: a mask that does not fit its ids', () => {
  // Fields of a row whose first round was encoded again, as a trainer that re-tokenises would hold them.
  const row = (ids: number[], mask: (0 | 1)[], sources: TokenSource[]) => ({
    promptLength: 0,
    ids,
    sources,
    mask,
    logprobs: sources.map((source) => (source === 'sampled' ? -1 : null)),
    truncatedLogprobs: sources.map((source) => (source === 'sampled' ? -1 : null)),
  });
  const [s, t] = ['sampled', 'template'] as const;

  test('(a) silent: 7 entries for 7 ids, but two tool tokens would be trained', () => {
    const ids = [28032, 151645, 1, 2, 3, 4, 5];
    const sources: TokenSource[] = [s, s, t, t, t, s, s];
    expect(() => checkStream(row(ids, [1, 1, 1, 1, 0, 1, 1], sources), 'row 9')).toThrow(
      'auditing row 9: found mask 1 on a template token at index 2',
    );
    expect(() => checkStream(row(ids, [1, 1, 0, 0, 0, 1, 1], sources), 'row 9')).not.toThrow();
  });

  test('(b) loud: 10 entries for 7 ids are an error that names the row, and are not cut to fit', () => {
    const ids = [1, 2, 3, 4, 5, 6, 7];
    const sources: TokenSource[] = [s, s, t, t, t, s, s];
    const mask = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1] as const;
    const bad = row(ids, [...mask], sources);
    expect(() => checkStream(bad, 'row 9')).toThrowErrorMatchingInlineSnapshot(
      `[AuditError: auditing row 9: found 7 token ids, 10 mask entries; they must be equal in number. Nothing was trained on; make the rollout again.]`,
    );
    expect(bad.mask).toHaveLength(10);
  });

  test('a stream has no operation that makes it shorter, so that no difference of lengths is negative', () => {
    const stream = createStream([1, 2]);
    let length = stream.ids.length;
    const steps = [
      () => appendSampled(stream, 39, -1, -1),
      () => appendSampled(stream, 151645, -1, -1),
      () => appendSuffix(stream, { ids: [198, 19], sources: ['template', 'observation'] }),
      () => appendSuffix(stream, { ids: [], sources: [] }),
    ];
    for (const step of steps) {
      step();
      expect(stream.ids.length).toBeGreaterThanOrEqual(length);
      length = stream.ids.length;
      expect(() => checkStream(stream, 'row 9')).not.toThrow();
    }
  });
});

describe('B2: one mask for numerator and divisor', () => {
  /** A member with `sampled` tokens in one turn after `tools` tool tokens. */
  function member(sampled: number, tools: number, stop: 'stop' | 'length'): MaskedRow {
    const stream = createStream([1]);
    appendSuffix(stream, { ids: Array(tools).fill(7), sources: Array(tools).fill('observation') });
    for (let i = 0; i < sampled; i++) appendSampled(stream, 5, -1, -1);
    return { ...stream, turns: [{ span: [1 + tools, stream.ids.length], stop, calls: [] }] };
  }

  test.each([0, 12])('5 of 30 tokens in a truncated member, %i tool tokens: the divisor is 25', (tools) => {
    const group = [member(13, tools / 2, 'stop'), member(12, tools / 2, 'stop'), member(5, 0, 'length')];
    const masks = group.map((row) => lossMask(row, { maskTruncated: true }));
    const perTokenLoss = 1;
    const numerator = masks.flat().reduce<number>((sum, entry) => sum + entry * perTokenLoss, 0);
    const divisor = masks.reduce((sum, mask) => sum + count(mask), 0);
    expect(divisor).toBe(25);
    expect(numerator / divisor).toBe(1);
    expect(masks.map((mask) => mask.length)).toEqual(group.map((row) => row.ids.length));
  });

  test('without the exclusion all 30 count', () => {
    const group = [member(25, 12, 'stop'), member(5, 0, 'length')];
    const masks = group.map((row) => lossMask(row, { maskTruncated: false }));
    expect(count(masks.flat())).toBe(30);
  });
});

describe('B4: padding is known by length, never by value', () => {
  /** A finished row: prompt, then sampled ids that end in a stop id. */
  function row(prompt: number[], completion: number[], stop: 'stop' | 'end'): MaskedRow {
    const stream = createStream(prompt);
    for (const id of completion) appendSampled(stream, id, -1, -1);
    return { ...stream, turns: [{ span: [prompt.length, stream.ids.length], stop, calls: [] }] };
  }
  const prompt = [17, 10, 17, 30, 151645, 198];

  test('with pad = eos = 151645 the sampled stop token is trained and the padding is not', () => {
    const short = row(prompt, [19, 151645], 'stop');
    const long = row(prompt, [19, 19, 19, 151645], 'stop');
    const ids = padRows([short.ids, long.ids], 151645);
    const masks = padRows<number>(
      [short, long].map((one) => lossMask(one, { maskTruncated: true })),
      0,
    );
    expect(ids[0]).toEqual([...prompt, 19, 151645, 151645, 151645]);
    expect(masks[0]!.slice(-4)).toEqual([1, 1, 0, 0]);
    expect(masks[1]!.slice(-4)).toEqual([1, 1, 1, 1]);
    expect(masks[0]!.slice(0, 6)).toEqual([0, 0, 0, 0, 0, 0]);
  });

  test('151643, which is also the pad id, is trained where it was sampled', () => {
    const ended = row(prompt, [19, 151643], 'end');
    const masks = padRows<number>([lossMask(ended, { maskTruncated: true }), Array(10).fill(0)], 0);
    expect(masks[0]).toEqual([0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
  });
});
