// Published bugs, group A: re-tokenisation drift, token-in/token-out, prefixes. Ids by the real Qwen3 tokenizer.
import { describe, expect, test } from 'vitest';
import { appendSampled, appendSuffix, createStream, toEpisodeFields } from '../../src/rollout/stream.ts';
import { prefixBreak, tokenDrift } from '../../src/rollout/token-drift.ts';
import { parseTurn } from '../../src/rollout/tool-calls.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';

const text = await qwen3Text();
const ids = (list: string) => list.split(' ').map(Number);
const user = { role: 'user', content: '2+2?' };
const call = (a: number) => ({ function: { name: 'calc', arguments: { a } } });

const CALL = ids('151657 198 4913 606 788 330 26586 497 330 16370 788 5212 64 788 220 16 11248 151658 151645');

/** A stream with a prompt, one sampled turn and the results of its calls. */
function streamWith(prompt: number[], sampled: number[], observations: string[], enableThinking?: boolean) {
  const stream = createStream(prompt);
  for (const [index, id] of sampled.entries()) appendSampled(stream, id, -0.125 * (index + 1), -0.0625);
  appendSuffix(stream, text.toolSuffixParts(observations, enableThinking));
  return toEpisodeFields(stream, 'a rollout');
}

describe('A1: the Qwen3 template is not append-only', () => {
  const two = [user, { role: 'assistant', content: '4' }];
  const three = [...two, { role: 'user', content: '3+3?' }];
  const first = text.renderPrompt({ messages: two, addGenerationPrompt: false });
  const second = text.renderPrompt({ messages: three });

  test('both renderings come out exactly', () => {
    expect(first).toEqual(
      ids('151644 872 198 17 10 17 30 151645 198 151644 77091 198 151667 271 151668 271 19 151645 198'),
    );
    expect(second).toEqual(
      ids(
        '151644 872 198 17 10 17 30 151645 198 151644 77091 198 19 151645 198 151644 872 198 18 10 18 30 151645 198 151644 77091 198',
      ),
    );
  });

  test('the break is found at index 12', () => {
    expect(prefixBreak(first, second)).toBe(12);
  });

  test('the stream only appends: what was sampled stays, whatever a later rendering says', () => {
    const prompt = text.renderPrompt({ messages: [user] });
    const sampled = ids('151667 271 151668 271 19 151645');
    const row = streamWith(prompt, sampled, ['6']);
    expect(prefixBreak([...prompt, ...sampled], row.ids)).toBeNull();
    expect(row.ids.slice(0, first.length - 1)).toEqual(first.slice(0, -1));
  });
});

describe('A2: the line break between <|im_end|> and the tool turn', () => {
  const prompt = text.renderPrompt({ messages: [user] });
  const row = streamWith(prompt, CALL, ['4']);

  test('exactly one 198 follows the sampled <|im_end|>: source template, mask 0, no log-prob', () => {
    const end = prompt.length + CALL.length;
    expect(row.ids.slice(end - 2)).toEqual(
      ids('151658 151645 198 151644 872 198 151665 198 19 198 151666 151645 198 151644 77091 198'),
    );
    expect([row.ids[end], row.sources[end], row.mask[end], row.logprobs[end]]).toEqual([198, 'template', 0, null]);
    expect(row.ids[end + 1]).not.toBe(198);
  });

  test('the stream equals the rendering of the whole conversation where that is append-only', () => {
    const messages = [user, { role: 'assistant', content: '', tool_calls: [call(1)] }, { role: 'tool', content: '4' }];
    expect(row.ids).toEqual(text.renderPrompt({ messages }));
  });

  test('the observation has its own source, the frame around it is the template', () => {
    const suffix = row.sources.slice(prompt.length + CALL.length);
    expect(suffix.map((source) => source === 'observation')).toEqual(suffix.map((_, index) => index === 6));
    expect(suffix.filter((source) => source === 'template')).toHaveLength(13);
  });
});

describe('A4: sampled ids are kept though their text would encode otherwise', () => {
  const rows: [string, string, string][] = [
    ['39 402 287', 'Having', '28032'],
    ['92 92', '}}', '3417'],
    ['198 198', '\n\n', '271'],
    ['90 31486', '{"name', '4913 606'],
    ['522 14172 13429 29', '</tool_call>', '151658'],
    ['27 14172 13429 29', '<tool_call>', '151657'],
  ];

  test.each(rows)('%s stays as sampled in its row', (sampledIds, spelling, encodedIds) => {
    const sampled = ids(sampledIds);
    expect(text.decode(sampled)).toBe(spelling);
    const encoded = text.encodeTrusted(spelling);
    expect(encoded).toEqual(ids(encodedIds));
    const row = streamWith([1], [...sampled, 151_645], ['4']);
    const carried = row.ids.filter((_, index) => row.sources[index] === 'sampled').slice(0, -1);
    expect(tokenDrift(sampled, carried)).toEqual([]);
    expect(tokenDrift(sampled, encoded)[0]).toBe(0);
  });

  test('the rule for tags in ordinary pieces: they are text; only 151657 and 151658 open and close a block', () => {
    const body = text.encodeContent('\n{"name": "calc", "arguments": {"a": 1}}\n');
    const turn = { text, knownTools: ['calc'], thinkingOpenedByPrompt: false };
    const [open, close] = [ids('27 14172 13429 29'), ids('522 14172 13429 29')];
    const pieces = parseTurn({ ...turn, ids: [...open, ...body, ...close, 151_645] });
    expect(pieces.calls).toEqual([]);
    expect(pieces.content).toBe('<tool_call>\n{"name": "calc", "arguments": {"a": 1}}\n</tool_call>');
    expect(parseTurn({ ...turn, ids: [151_657, ...body, 151_658, 151_645] }).calls).toHaveLength(1);
    // Closed in pieces only: the letters spoil the JSON, and the block stays open.
    const half = parseTurn({ ...turn, ids: [151_657, ...body, ...close, 151_645] });
    expect(half.calls.map((call) => call.status)).toEqual(['unclosed']);
  });
});

describe('A6: without thinking, the prefilled empty think block stays in the context', () => {
  const prompt = text.renderPrompt({ messages: [user], enableThinking: false });
  const row = streamWith(prompt, CALL, ['4'], false);

  test('the prompt ends with it, and a re-rendering of the conversation has lost it', () => {
    expect(prompt.slice(-7)).toEqual(ids('151644 77091 198 151667 271 151668 271'));
    const messages = [user, { role: 'assistant', content: '', tool_calls: [call(1)] }, { role: 'tool', content: '4' }];
    const rendered = text.renderPrompt({ messages, enableThinking: false });
    expect(rendered.slice(prompt.length - 7, prompt.length - 1)).toEqual(ids('151644 77091 198 151657 198 4913'));
    expect(prefixBreak(prompt, rendered)).toBe(prompt.length - 4);
  });

  test('with ids carried forward the four tokens stay, with mask 0', () => {
    const at = prompt.length - 4;
    expect(row.ids.slice(at, prompt.length)).toEqual(ids('151667 271 151668 271'));
    expect(row.mask.slice(at, prompt.length)).toEqual([0, 0, 0, 0]);
    expect(row.ids.slice(-7)).toEqual(ids('151644 77091 198 151667 271 151668 271'));
    expect(row.mask.slice(-7)).toEqual([0, 0, 0, 0, 0, 0, 0]);
  });
});

describe('A9: results of parallel calls share one user turn', () => {
  const tail = ids('151644 872 198 151665 198 16 198 151666 198 151665 198 19 198 151666 151645 198 151644 77091 198');

  test('in the suffix', () => {
    expect(text.toolSuffix(['1', '4'])).toEqual([198, ...tail]);
  });

  test('in the rendering of the conversation', () => {
    const messages = [
      user,
      { role: 'assistant', content: '', tool_calls: [call(1), call(2)] },
      { role: 'tool', content: '1' },
      { role: 'tool', content: '4' },
    ];
    expect(text.renderPrompt({ messages }).slice(-tail.length)).toEqual(tail);
  });
});
