// The token stream's invariants, and incremental decoding against decoding at once.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { AuditError } from '../../src/lib/errors.ts';
import { createStreamDecoder } from '../../src/model/stream-decoder.ts';
import { episode } from '../../src/rollout/episode.ts';
import { lossMask, padRows } from '../../src/rollout/loss-mask.ts';
import {
  appendForced,
  appendSampled,
  appendSuffix,
  checkStream,
  createStream,
  toEpisodeFields,
} from '../../src/rollout/stream.ts';
import { prefixBreak, tokenDrift } from '../../src/rollout/token-drift.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';

const text = await qwen3Text();

function smallStream() {
  const stream = createStream([1, 2]);
  appendSampled(stream, 3, -0.5, -0.25, 0.75);
  appendForced(stream, [4]);
  appendSuffix(stream, { ids: [5, 6], sources: ['template', 'observation'] });
  appendSampled(stream, 7, -1, -1);
  return stream;
}

test('each token carries its source, mask, log-probs and entropy', () => {
  expect(toEpisodeFields(smallStream(), 'a rollout')).toEqual({
    promptLength: 2,
    ids: [1, 2, 3, 4, 5, 6, 7],
    sources: ['prompt', 'prompt', 'sampled', 'forced', 'template', 'observation', 'sampled'],
    mask: [0, 0, 1, 0, 0, 0, 1],
    logprobs: [null, null, -0.5, null, null, null, -1],
    truncatedLogprobs: [null, null, -0.25, null, null, null, -1],
    entropies: [null, null, 0.75, null, null, null, null],
  });
});

test("the fields are what the episode's schema takes, and copies", () => {
  const stream = smallStream();
  const fields = toEpisodeFields(stream, 'a rollout');
  for (const [name, value] of Object.entries(fields)) {
    expect(episode.shape[name as keyof typeof fields].safeParse(value).success).toBe(true);
  }
  appendSampled(stream, 8, -1, -1);
  expect(fields.ids).toHaveLength(7);
});

const faults: [string, string, (stream: ReturnType<typeof smallStream>) => unknown][] = [
  ['mask-length', '7 token ids, 6 mask entries', (stream) => stream.mask.pop()],
  ['mask-length', '8 token ids, 7 mask entries', (stream) => stream.ids.push(9)],
  ['mask-length', '7 token ids, 8 sources', (stream) => stream.sources.push('sampled')],
  ['mask-length', '7 token ids, 6 logprobs', (stream) => stream.logprobs.pop()],
  ['mask-length', '7 token ids, 6 truncated logprobs', (stream) => stream.truncatedLogprobs.pop()],
  ['mask-length', '7 token ids, 6 entropies', (stream) => stream.entropies.pop()],
  ['logprob-source', 'entropy 0.5 on a template token at index 4', (stream) => (stream.entropies[4] = 0.5)],
  ['logprob-source', 'entropy NaN on a sampled token at index 2', (stream) => (stream.entropies[2] = Number.NaN)],
  ['mask-length', 'a prompt of 8', (stream) => (stream.promptLength = 8)],
  ['mask-length', 'a prompt of -1', (stream) => (stream.promptLength = -1)],
  ['mask-source', 'mask 1 on a template token at index 4', (stream) => (stream.mask[4] = 1)],
  ['mask-source', 'mask 0 on a sampled token at index 6', (stream) => (stream.mask[6] = 0)],
  ['mask-source', 'source prompt at index 1', (stream) => (stream.promptLength = 1)],
  ['mask-source', 'source sampled at index 2', (stream) => (stream.promptLength = 3)],
  ['logprob-source', 'log-prob null on a sampled token at index 2', (stream) => (stream.logprobs[2] = null)],
  ['logprob-source', 'log-prob NaN on a sampled', (stream) => (stream.truncatedLogprobs[2] = Number.NaN)],
  ['logprob-source', 'log-prob -Infinity', (stream) => (stream.logprobs[6] = Number.NEGATIVE_INFINITY)],
  ['logprob-source', 'log-prob 0 on a observation token', (stream) => (stream.logprobs[5] = 0)],
  ['token-id', 'token id -1 at index 0', (stream) => (stream.ids[0] = -1)],
  ['token-id', 'token id 1.5 at index 0', (stream) => (stream.ids[0] = 1.5)],
];

test.each(faults)('a contradiction is refused: %s, %s', (code, found, spoil) => {
  const stream = smallStream();
  expect(() => checkStream(stream, 'rollout 3 of step 17')).not.toThrow();
  spoil(stream);
  const thrown = (() => {
    try {
      checkStream(stream, 'rollout 3 of step 17');
    } catch (error) {
      return error;
    }
  })() as AuditError;
  expect(thrown).toBeInstanceOf(AuditError);
  expect(thrown.code).toBe(code);
  expect(thrown.message).toContain(found);
  expect(thrown.message).toContain('rollout 3 of step 17');
});

test('a suffix with more ids than sources is refused before anything is appended', () => {
  const stream = smallStream();
  expect(() => appendSuffix(stream, { ids: [1, 2], sources: ['template'] })).toThrowErrorMatchingInlineSnapshot(
    `[AuditError: appending a tool suffix: found 2 ids, 1 sources; they must be equal in number. Nothing was trained on; make the rollout again.]`,
  );
  expect(stream.ids).toHaveLength(7);
});

test('drift lists every index that differs, and a prefix breaks at its first', () => {
  expect(tokenDrift([1, 2, 3], [1, 2, 3])).toEqual([]);
  expect(tokenDrift([1, 2, 3], [1, 9])).toEqual([1, 2]);
  expect(tokenDrift([1], [1, 9])).toEqual([1]);
  expect(prefixBreak([1, 2], [1, 2, 3])).toBeNull();
  expect(prefixBreak([1, 2], [1, 3, 2])).toBe(1);
  expect(prefixBreak([1, 2], [1])).toBe(1);
});

test('the loss mask leaves truncated episodes out only when asked to', () => {
  const stream = smallStream();
  const turn = { span: [6, 7] as [number, number], calls: [] };
  const finished = { ...stream, turns: [{ ...turn, stop: 'stop' as const }] };
  const limited = { ...stream, turns: [{ ...turn, stop: 'length' as const }] };
  const endsInTool = { ...stream, turns: [{ ...turn, span: [2, 3] as [number, number], stop: 'stop' as const }] };
  for (const row of [finished, limited, endsInTool]) {
    expect(lossMask(row, { maskTruncated: false })).toEqual(stream.mask);
    expect(lossMask(row, { maskTruncated: true })).toEqual(row === finished ? stream.mask : [0, 0, 0, 0, 0, 0, 0]);
  }
});

test('rows are padded to the longest', () => {
  expect(padRows([[1], [1, 2, 3], []], 0)).toEqual([
    [1, 0, 0],
    [1, 2, 3],
    [0, 0, 0],
  ]);
});

test('decoding token by token gives the same text as decoding at once, for any ids', () => {
  // Byte pieces are ids 0 to 255 in some order, so that short lists make many broken characters.
  const id = fc.oneof(fc.nat(255), fc.nat(text.vocabularySize - 1), fc.constantFrom(123_918, 250, 151_645, 5691));
  fc.assert(
    fc.property(fc.array(id, { maxLength: 40 }), (ids) => {
      const decoder = createStreamDecoder(text);
      const streamed = ids.map((one) => decoder.push(one)).join('') + decoder.end();
      expect(streamed).toBe(text.decode(ids));
      const bytes = Uint8Array.from(ids.flatMap((one) => [...text.bytesOf(one)]));
      const valid = Buffer.from(streamed, 'utf8').equals(bytes);
      expect(decoder.damaged()).toBe(!valid);
    }),
    { seed: 20_261_020, numRuns: 500 },
  );
});
