import { beforeAll, describe, expect, it } from 'vitest';
import type { ChatMessage } from '../../src/model/chat-template.ts';
import type { Text } from '../../src/model/text.ts';
import { readAnswer } from '../../src/serve/answer.ts';
import type { Conversation, TurnTokens } from '../../src/serve/conversation.ts';
import { promptOf } from '../../src/serve/prompt.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import { CHATML, smallTokenizerJson, textOfFiles } from '../support/small-text.ts';

const tools = [
  { type: 'function', function: { name: 'add', description: 'Adds.', parameters: { type: 'object', properties: {} } } },
];
type Turn = ChatMessage | [ChatMessage, TurnTokens];
const conversation = (turns: Turn[], more: Partial<Conversation> = {}): Conversation => ({
  messages: turns.map((turn) =>
    Array.isArray(turn) ? { message: turn[0], tokens: turn[1] } : { message: turn, tokens: null },
  ),
  tools,
  toolNames: ['add'],
  enableThinking: undefined,
  requiredPrefix: null,
  ...more,
});

let text: Text;
beforeAll(async () => {
  text = await qwen3Text();
}, 60_000);
const user: ChatMessage = { role: 'user', content: 'Add 1 and 2.' };
const sampled = '<think>\nEasy.\n</think>\n\n<tool_call>\n{"name": "add",  "arguments": {"a":1,"b":2}}\n</tool_call>';

/** A first turn as the model might have sampled it: spaced as no template would write it. */
function firstTurn(end = '<|im_end|>') {
  const promptIds = promptOf(conversation([user]), text);
  const generationIds = text.encodeTrusted(`${sampled}${end}`);
  const answer = readAnswer(
    { promptIds, ids: generationIds, logprobs: generationIds.map(() => 0), cachedTokens: 0, seed: 0 },
    ['add'],
    text,
  );
  const [call] = answer.calls;
  const message: ChatMessage = {
    role: 'assistant',
    content: answer.content,
    reasoning_content: answer.reasoning,
    tool_calls: [{ id: call!.id, type: 'function', function: { name: call!.name, arguments: call!.argumentsJson } }],
  };
  return { promptIds, generationIds, message, tokens: { promptIds, generationIds } };
}

describe('the prompt of a conversation', () => {
  it('is what the template makes of it where there are no token ids', () => {
    const turns = [user, { role: 'assistant', content: 'So be it.' }, { role: 'user', content: '<|im_end|>' }];
    expect(promptOf(conversation(turns), text)).toEqual(text.renderPrompt({ messages: turns, tools }));
  });

  it('goes on from the token ids of an answer, with what training puts between the turns', () => {
    const { promptIds, generationIds, message, tokens } = firstTurn();
    const prompt = promptOf(conversation([user, [message, tokens], { role: 'tool', content: '<|im_end|>3' }]), text);
    expect(prompt).toEqual([...promptIds, ...generationIds, ...text.toolSuffix(['<|im_end|>3'])]);
    const rendered = text.renderPrompt({ messages: [user, message, { role: 'tool', content: '<|im_end|>3' }], tools });
    // The template spaces the call otherwise: rendered anew, the history would be another one.
    expect(rendered).not.toEqual(prompt);
    expect(prompt.slice(-20)).toEqual(rendered.slice(-20));
  });

  it('ends a turn that was cut off before what follows it', () => {
    const { promptIds, generationIds, message, tokens } = firstTurn('');
    const prompt = promptOf(conversation([user, [message, tokens], { role: 'tool', content: '3' }]), text);
    expect(prompt).toEqual([...promptIds, ...generationIds, text.imEndId, ...text.toolSuffix(['3'])]);
  });

  it('adds a user turn though the template then rewrites earlier turns, whose ids stay', () => {
    const { promptIds, generationIds, message, tokens } = firstTurn();
    const rest: ChatMessage[] = [{ role: 'tool', content: '3' }, { role: 'assistant', content: 'It is 3.' }, user];
    const prompt = promptOf(conversation([user, [message, tokens], ...rest]), text);
    expect(prompt.slice(0, promptIds.length + generationIds.length)).toEqual([...promptIds, ...generationIds]);
    const added = text.decode(prompt.slice(promptIds.length + generationIds.length));
    expect(added).toBe(
      '\n<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\nIt is 3.<|im_end|>\n' +
        '<|im_start|>user\nAdd 1 and 2.<|im_end|>\n<|im_start|>assistant\n',
    );
  });

  it('takes the ids of the last answer, and refuses a history whose ids contradict each other', () => {
    const { promptIds, generationIds, message, tokens } = firstTurn();
    const secondPrompt = promptOf(conversation([user, [message, tokens], { role: 'tool', content: '3' }]), text);
    const second = { promptIds: secondPrompt, generationIds: text.encodeTrusted('3<|im_end|>') };
    const turns: Turn[] = [user, [message, tokens], { role: 'tool', content: '3' }];
    const third = promptOf(conversation([...turns, [{ role: 'assistant', content: '3' }, second], user]), text);
    expect(third.slice(0, secondPrompt.length + 2)).toEqual([...secondPrompt, ...second.generationIds]);
    const other = { promptIds: [...promptIds, ...generationIds.slice(1)], generationIds: [1] };
    expect(() => promptOf(conversation([...turns, [message, other], user]), text)).toThrow(
      /messages\[3\]\.prompt_token_ids.*do not begin with the prompt and the answer of the turn before/,
    );
  });

  it("takes a required prefix in place of the turns up to the last assistant's", () => {
    const { promptIds, generationIds, message, tokens } = firstTurn();
    const turns: Turn[] = [user, message, { role: 'tool', content: '3' }];
    const withPrefix = conversation(turns, { requiredPrefix: [...promptIds, ...generationIds] });
    expect(promptOf(withPrefix, text)).toEqual(
      promptOf(conversation([user, [message, tokens], { role: 'tool', content: '3' }]), text),
    );
    expect(() => promptOf(conversation([user], { requiredPrefix: [1] }), text)).toThrow(/without an assistant turn/);
  });

  it('refuses token ids that stand for nothing', () => {
    const bad = { promptIds: [151_669], generationIds: [] };
    const turns: Turn[] = [user, [{ role: 'assistant', content: 'x' }, bad], user];
    expect(() => promptOf(conversation(turns), text)).toThrow(/found token id 151669; wanted ids of this model/);
  });

  it('refuses a conversation that the template refuses, as a fault of the request', async () => {
    const template = `{{ raise_exception('no') if messages[0].role != 'user' }}${CHATML}`;
    const strict = await textOfFiles({
      'tokenizer.json': smallTokenizerJson(),
      'tokenizer_config.json': { eos_token: '<|im_end|>', chat_template: template },
    });
    const turns: Turn[] = [{ role: 'system', content: 'x' }, user];
    expect(() => promptOf(conversation(turns, { tools: [] }), strict)).toThrow(
      expect.objectContaining({ status: 400, code: 'template_refused' }),
    );
    // It does not show tools at all.
    expect(() => promptOf(conversation([user]), strict)).toThrow(
      expect.objectContaining({ status: 400, code: 'template_refused' }),
    );
  });
});
