import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Text } from '../../src/model/text.ts';
import { readAnswer } from '../../src/serve/answer.ts';
import { beforeStop, createStopWatch } from '../../src/serve/stop-texts.ts';
import { CHATML, smallTokenizerJson, textOfFiles } from '../support/small-text.ts';

let text: Text;
beforeAll(async () => {
  // Bytes, and tokens that hold a stop text together with what stands before or after it.
  const merges: [string, string][] = [
    ['a', 'b'],
    ['ab', 'c'],
    ['x', 'a'],
  ];
  text = await textOfFiles({
    'tokenizer.json': smallTokenizerJson(['<|im_start|>', '<|im_end|>'], merges),
    'tokenizer_config.json': { eos_token: '<|im_end|>', chat_template: CHATML },
  });
});
const letters = fc.array(fc.constantFrom('a', 'b', 'c', 'x', 'ab', 'abc', 'xa', 'ä'), { maxLength: 20 });
const anyStops = fc.array(fc.constantFrom('ab', 'bc', 'aba', 'cab', 'xx', 'ä', 'abcx'), { minLength: 1, maxLength: 3 });
const ids = (pieces: readonly string[]) => pieces.flatMap((piece) => text.encodeContent(piece));

/** Without a character that is not finished. */
const whole = (decoded: string) => decoded.replace(/\uFFFD$/, '');

describe('stop texts', () => {
  it('end a turn at the first token with which the text holds one, and release nothing of it before', () => {
    let ended = 0;
    fc.assert(
      fc.property(letters, anyStops, (pieces, stops) => {
        const sampled = ids(pieces);
        const watch = createStopWatch(text, stops);
        for (const [i, id] of sampled.entries()) {
          const soFar = whole(text.decode(sampled.slice(0, i + 1)));
          const { released, stopped } = watch.push(id);
          expect(stopped).toBe(stops.some((stop) => soFar.includes(stop)));
          const shown = whole(text.decode(sampled.slice(0, released)));
          expect(beforeStop(text.decode(sampled), stops).startsWith(shown)).toBe(true);
          if (stopped) {
            ended += 1;
            return;
          }
        }
      }),
      { numRuns: 300 },
    );
    expect(ended).toBeGreaterThan(50);
  });

  it('hold back only what may begin one', () => {
    const watch = createStopWatch(text, ['abcx']);
    expect(ids(['x', 'a', 'b', 'c', 'a']).map((id) => watch.push(id).released)).toEqual([1, 1, 1, 1, 4]);
  });

  it('are no part of the content, and end it as a stop', () => {
    const sampled = ids(['x', 'x', 'abc']);
    const logprobs = sampled.map(() => 0);
    const turn = { promptIds: [1], ids: sampled, logprobs, cachedTokens: 0, seed: 0 };
    const answer = readAnswer(turn, [], text, { stops: ['bc'], stopped: true });
    expect(answer).toMatchObject({ content: 'xxa', finish: 'stop', rawText: 'xxabc', ids: sampled });
  });
});
