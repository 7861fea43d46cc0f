import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Text } from '../../src/model/text.ts';
import { readAnswer } from '../../src/serve/answer.ts';
import { chatReply } from '../../src/serve/chat-reply.ts';
import { createLiveText } from '../../src/serve/live-text.ts';
import { responsesReply } from '../../src/serve/responses-reply.ts';
import { readResponsesRequest } from '../../src/serve/responses-request.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import { CHATML, smallTokenizerJson, textOfFiles } from '../support/small-text.ts';

let qwen: Text;
/** Its tags are letters, not added tokens, and its tokens are bytes. */
let bytes: Text;
beforeAll(async () => {
  qwen = await qwen3Text();
  bytes = await textOfFiles({
    'tokenizer.json': smallTokenizerJson(),
    'tokenizer_config.json': { eos_token: '<|im_end|>', chat_template: CHATML },
  });
}, 60_000);

const promptIds = [9, 9, 9];
const read = (ids: number[], text: Text, names = ['add'], prompt = promptIds) =>
  readAnswer({ promptIds: prompt, ids, logprobs: ids.map((_, i) => -i), cachedTokens: 2, seed: 5 }, names, text);
const answer = (said: string, names?: string[]) => read(qwen.encodeTrusted(said), qwen, names);
const good = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>';

describe('an answer', () => {
  it('has content, reasoning and calls apart, and the raw text whole', () => {
    const said = `<think>\nHm.\n</think>\n\nLet me see.\n${good}`;
    const read = answer(`${said}<|im_end|>`);
    expect(read).toMatchObject({ content: 'Let me see.', reasoning: 'Hm.', rawText: said, finish: 'tool_calls' });
    expect(read.calls).toEqual([{ id: expect.any(String), name: 'add', argumentsJson: '{"a": 1}' }]);
    expect(read.reasoningTokens).toBe(qwen.encodeTrusted('<think>\nHm.\n</think>').length);
    expect(answer('Plain.').reasoningTokens).toBe(0);
    expect(answer('Hm.<think>Never closed').reasoningTokens).toBe(qwen.encodeTrusted('<think>Never closed').length);
  });

  it('names calls by their place, so that a repetition gives the same ids and a later turn others', () => {
    const ids = (prompt: number[]) =>
      read(qwen.encodeTrusted(`${good}\n${good}`), qwen, ['add'], prompt).calls.map(({ id }) => id);
    expect(ids([9, 9])).toEqual(ids([9, 9]));
    expect(new Set([...ids([9, 9]), ...ids([9, 9, 9, 9, 9])]).size).toBe(4);
  });

  it('keeps blocks that are no good call as text, and finds no call where no tool may be called', () => {
    const unknown = good.replace('add', 'verify');
    expect(answer(`A${unknown}<|im_end|>`)).toMatchObject({ content: `A\n${unknown}`, calls: [], finish: 'stop' });
    expect(answer(`${good}<|im_end|>`, [])).toMatchObject({ content: good, calls: [], finish: 'stop' });
    expect(answer('<tool_call>\n{"name": <|im_end|>')).toMatchObject({ content: '<tool_call>\n{"name": ', calls: [] });
  });

  it('says that it was cut off where no stop token ends it', () => {
    expect(answer(`${good}\nAnd`)).toMatchObject({ finish: 'length', content: 'And' });
  });

  it('becomes a chat completion with ids and log-probs of all its tokens', () => {
    const head = { id: 'x', created: 1, model: 'm', fingerprint: 'f' };
    const made = answer(`${good}<|im_end|>`);
    const wants = { logprobs: true, tokensAsIds: true, tokenIds: null };
    const { choices, usage, seed } = chatReply(head, made, wants, qwen);
    const [{ message, logprobs, finish_reason }] = choices as [(typeof choices)[0]];
    expect(message).toMatchObject({
      content: null,
      tool_calls: [{ type: 'function', function: { name: 'add', arguments: '{"a": 1}' } }],
      prompt_token_ids: promptIds,
      generation_token_ids: made.ids,
      generation_log_probs: made.logprobs,
      raw_text: good,
    });
    expect(logprobs!.content.map(({ token, logprob }) => [token, logprob])).toEqual(
      made.ids.map((id, i) => [`token_id:${id}`, -i]),
    );
    expect([finish_reason, seed]).toEqual(['tool_calls', 5]);
    expect(usage).toMatchObject({ prompt_tokens: 3, completion_tokens: made.ids.length });
    const without = chatReply(head, made, { ...wants, logprobs: false, tokenIds: false }, qwen);
    expect(JSON.stringify(without)).not.toContain('token_ids');
    expect(without.choices[0]!.logprobs).toBeNull();
  });

  it('becomes a response whose last item carries the token ids of the turn, all three lists', () => {
    const head = { id: 'x', created: 1, model: 'm', fingerprint: 'f' };
    const request = readResponsesRequest('{"input":"x","instructions":"Be brief."}');
    const made = answer(`<think>\nHm.\n</think>\n\nSo:${good}<|im_end|>`);
    const reply = responsesReply(head, made, request, qwen);
    expect(reply.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call']);
    const carrying = reply.output.filter((item) => 'prompt_token_ids' in item);
    expect(carrying).toEqual([reply.output[2]]);
    expect(carrying[0]).toMatchObject({ generation_token_ids: made.ids, generation_log_probs: made.logprobs });
    expect(reply).toMatchObject({ status: 'completed', incomplete_details: null, instructions: 'Be brief.' });
    const cut = responsesReply(head, answer('So'), request, qwen);
    expect(cut).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    expect(responsesReply(head, answer('<|im_end|>'), request, qwen).output).toHaveLength(1);
  });
});

describe('the live text of a stream', () => {
  const stretches = [
    '<think>',
    '</think>',
    '<tool_call>',
    '</tool_call>',
    '<th',
    '<',
    'ink>',
    '\n',
    ' ',
    'ä',
    'a b',
    '😀',
  ];
  const turn = fc.array(
    fc.oneof(fc.constantFrom(...stretches, good, '{"name": "add"}'), fc.integer({ min: 0, max: 255 })),
    { maxLength: 14 },
  );

  it.each(['added tokens', 'letters'])(
    'never has to be taken back, and ends as the whole answer (tags: %s)',
    (kind) => {
      const text = kind === 'letters' ? bytes : qwen;
      let streamed = 0;
      fc.assert(
        fc.property(turn, fc.boolean(), (parts, thinking) => {
          const ids = parts.flatMap((part) => (typeof part === 'number' ? [part] : text.encodeTrusted(part)));
          if (ids.length === 0) return;
          const prompt = thinking ? text.encodeTrusted('<|im_end|>\n<think>\n') : promptIds;
          const whole = read(ids, text, ['add'], prompt);
          const live = createLiveText(text, thinking);
          const joined = { content: '', reasoning: '' };
          for (const id of ids) {
            const { content, reasoning } = live.push(id);
            joined.content += content;
            joined.reasoning += reasoning;
            expect(whole.content.startsWith(joined.content)).toBe(true);
            expect((whole.reasoning ?? '').startsWith(joined.reasoning)).toBe(true);
          }
          streamed += joined.content.length + joined.reasoning.length;
          const rest = live.end(whole);
          expect({ content: joined.content + rest.content, reasoning: joined.reasoning + rest.reasoning }).toEqual({
            content: whole.content,
            reasoning: whole.reasoning ?? '',
          });
        }),
        { numRuns: 200 },
      );
      expect(streamed).toBeGreaterThan(500);
    },
  );

  it('gives plain text as it comes, and holds back only what may begin a tag', () => {
    const live = createLiveText(bytes, false);
    const pushed = [...'Hi <tool_call'].map((letter) => live.push(bytes.encodeContent(letter)[0]!).content);
    expect(pushed).toEqual(['H', 'i', '', '', '', '', '', '', '', '', '', '', '']);
    expect(live.push(bytes.encodeContent('s')[0]!).content).toBe(' <tool_calls');
  });
});
