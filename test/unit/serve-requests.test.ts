import { describe, expect, it } from 'vitest';
import { ApiError } from '../../src/serve/api-error.ts';
import { readChatRequest } from '../../src/serve/chat-request.ts';
import { readResponsesRequest } from '../../src/serve/responses-request.ts';
import { readTokenizeRequest } from '../../src/serve/tokenize-request.ts';

const hi = [{ role: 'user', content: 'Hi' }];
const chat = (more: object = {}) => readChatRequest(JSON.stringify({ messages: hi, ...more }));
const responses = (more: object = {}) => readResponsesRequest(JSON.stringify({ input: 'Hi', ...more }));
const tool = { type: 'function', function: { name: 'add', parameters: { type: 'object', properties: {} } } };

function refusal(read: () => unknown): [string | null, string, string] {
  try {
    read();
  } catch (error) {
    if (error instanceof ApiError && error.status === 400) return [error.param, error.code, error.message];
    throw error;
  }
  throw new Error('it was not refused');
}

describe('a chat request', () => {
  it("has OpenAI's defaults where it names nothing", () => {
    expect(chat()).toEqual({
      model: null,
      conversation: {
        messages: [{ message: { role: 'user', content: 'Hi' }, tokens: null }],
        tools: [],
        toolNames: [],
        enableThinking: undefined,
        requiredPrefix: null,
      },
      settings: { temperature: 1, topP: 1, topK: 0, minP: 0 },
      seed: null,
      maxTokens: null,
      logprobs: false,
      stops: [],
      ignoreEnd: false,
      tokenIds: null,
      stream: false,
      includeUsage: false,
      tokensAsIds: false,
    });
    expect([chat({ stop: 'Q:' }).stops, chat({ stop: ['a', 'b'] }).stops]).toEqual([['Q:'], ['a', 'b']]);
    expect(chat({ temperature: null, stop: null, tools: null, a_new_parameter: null })).toEqual(chat());
  });

  it("takes what NeMo Gym's model server sends", () => {
    const sent = { logprobs: true, top_logprobs: 0, return_tokens_as_token_ids: true, return_token_ids: true };
    expect(chat({ ...sent, top_k: -1, chat_template_kwargs: { enable_thinking: false } })).toMatchObject({
      logprobs: true,
      tokensAsIds: true,
      tokenIds: true,
      settings: { topK: 0 },
      conversation: { enableThinking: false },
    });
  });

  it.each([
    [{ n: 2 }, 'n'],
    [{ logprobs: true, top_logprobs: 5 }, 'top_logprobs'],
    [{ frequency_penalty: 0.5 }, 'frequency_penalty'],
    [{ presence_penalty: -1 }, 'presence_penalty'],
    [{ logit_bias: { 5: 1 } }, 'logit_bias'],
    [{ response_format: { type: 'json_object' } }, 'response_format'],
    [{ tool_choice: 'required', tools: [tool] }, 'tool_choice'],
    [{ tool_choice: { type: 'function', function: { name: 'add' } }, tools: [tool] }, 'tool_choice'],
    [{ parallel_tool_calls: false, tools: [tool] }, 'parallel_tool_calls'],
    [{ reasoning_effort: 'high' }, 'reasoning_effort'],
    [{ chat_template_kwargs: { date: 'today' } }, 'chat_template_kwargs.date'],
    [{ best_of: 3 }, 'best_of'],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] }, 'messages[0].content[0]'],
  ])('with %o is refused as unsupported, naming the parameter', (more, param) => {
    const [where, code, message] = refusal(() => chat(more));
    expect([where, code]).toEqual([param, 'unsupported_parameter']);
    expect(message).toMatch(/: found .*; wanted .*\. .*\./);
  });

  it.each([
    [{ temperature: 3 }, 'temperature'],
    [{ top_p: 0 }, 'top_p'],
    [{ seed: -1 }, 'seed'],
    [{ seed: 2 ** 32 }, 'seed'],
    [{ max_tokens: 0 }, 'max_tokens'],
    [{ messages: [] }, 'messages'],
    [{ messages: [{ role: 'wizard', content: 'x' }] }, 'messages[0].role'],
    [{ tools: [{ type: 'function', function: { name: 'a b' } }] }, 'tools[0].function.name'],
    [{ tools: [tool, tool] }, 'tools'],
    [{ top_logprobs: 0 }, 'top_logprobs'],
    [{ stop: [''] }, 'stop[0]'],
    [{ messages: [{ role: 'assistant', content: 'x', prompt_token_ids: [1] }] }, 'messages[0]'],
  ])('with %o is refused as wrong, naming the field', (more, param) => {
    const [where, code] = refusal(() => chat(more));
    expect([where, code]).toEqual([param, 'invalid_value']);
  });

  it('must be a JSON object', () => {
    for (const text of ['', '{', '[]', 'null', '"x"']) {
      expect(refusal(() => readChatRequest(text))[1]).toBe('invalid_json');
    }
  });

  it('keeps the key order and number spelling of tools, and shows them in the shape of training', () => {
    const parameters = '{"type":"object","properties":{"10":{"type":"number","minimum":0.0},"2":{"type":"string"}}}';
    const text = `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"strict":true,"parameters":${parameters},"name":"f"}}]}`;
    const { tools, toolNames } = readChatRequest(text).conversation;
    expect(toolNames).toEqual(['f']);
    const [shown] = tools as { function: { parameters: { properties: object } } }[];
    expect(Object.keys(shown!)).toEqual(['type', 'function']);
    expect(Object.keys(shown!.function)).toEqual(['name', 'description', 'parameters']);
    expect(Object.keys(shown!.function.parameters.properties)).toEqual(['10', '2']);
  });

  it('leaves the tools out of the prompt where the choice is none', () => {
    expect(chat({ tools: [tool], tool_choice: 'none' }).conversation).toMatchObject({ tools: [], toolNames: [] });
    expect(chat({ tools: [tool], tool_choice: 'auto' }).conversation.toolNames).toEqual(['add']);
  });

  it('reads an assistant turn as an answer gave it: calls, reasoning, token ids, and what else stands on it', () => {
    const turn = {
      role: 'assistant',
      content: null,
      refusal: null,
      raw_text: 'x',
      reasoning_content: 'hm',
      tool_calls: [{ id: 'call_1_0', type: 'function', function: { name: 'add', arguments: '{"b": 1, "a": 2}' } }],
      prompt_token_ids: [1, 2],
      generation_token_ids: [3],
      generation_log_probs: [-0.5],
    };
    const { messages } = chat({
      messages: [...hi, turn, { role: 'tool', tool_call_id: 'call_1_0', content: '3' }],
    }).conversation;
    expect(messages.map(({ tokens }) => tokens)).toEqual([null, { promptIds: [1, 2], generationIds: [3] }, null]);
    const { message } = messages[1]!;
    expect(message).toMatchObject({ role: 'assistant', content: '', reasoning_content: 'hm' });
    expect(Object.entries(message.tool_calls![0]!.function.arguments as object)).toEqual([
      ['b', 1],
      ['a', 2],
    ]);
    expect(messages[2]!.message).toEqual({ role: 'tool', content: '3' });
  });
});

describe('a responses request', () => {
  it('gives the same conversation as the chat request that says the same', () => {
    const items = [
      { role: 'developer', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'input_text', text: 'Add.' }] },
      { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 'hm' }] },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'So:', annotations: [] }] },
      { type: 'function_call', call_id: 'c1', name: 'add', arguments: '{"a":1}' },
      {
        type: 'function_call',
        call_id: 'c2',
        name: 'add',
        arguments: '{"a":2}',
        prompt_token_ids: [1],
        generation_token_ids: [2, 3],
        generation_log_probs: [0, 0],
      },
      { type: 'function_call_output', call_id: 'c1', output: '1' },
      { type: 'function_call_output', call_id: 'c2', output: '2' },
      { type: 'message', role: 'assistant', content: 'Done.' },
      { role: 'user', content: 'Thanks.' },
    ];
    const call = (id: string, text: string) => ({ id, type: 'function', function: { name: 'add', arguments: text } });
    const messages = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Add.' },
      {
        role: 'assistant',
        content: 'So:',
        reasoning_content: 'hm',
        tool_calls: [call('c1', '{"a":1}'), call('c2', '{"a":2}')],
        prompt_token_ids: [1],
        generation_token_ids: [2, 3],
        generation_log_probs: [0, 0],
      },
      { role: 'tool', content: '1' },
      { role: 'tool', content: '2' },
      { role: 'assistant', content: 'Done.' },
      { role: 'user', content: 'Thanks.' },
    ];
    const flat = { type: 'function', ...tool.function, strict: false };
    expect(responses({ input: items, tools: [flat] }).conversation).toEqual(
      chat({ messages, tools: [tool] }).conversation,
    );
  });

  it("takes a row of NeMo Gym with all its defaults, and what its metadata says for the model's server", () => {
    const row = {
      input: [{ role: 'user', content: 'Hi', type: 'message' }],
      ...{ tools: [], tool_choice: 'auto', parallel_tool_calls: true, background: null, include: null, model: null },
      ...{ instructions: null, max_output_tokens: 7, temperature: 0.5, top_p: null, stream: null, truncation: null },
      metadata: { extra_body: '{"seed":9,"temperature":0.1}', chat_template_kwargs: '{"enable_thinking":false}' },
    };
    expect(readResponsesRequest(JSON.stringify(row))).toMatchObject({
      seed: 9,
      maxTokens: 7,
      settings: { temperature: 0.5, topP: 1 },
      conversation: { enableThinking: false },
    });
    expect(refusal(() => responses({ metadata: { extra_body: '[1]' } }))[0]).toBe('metadata.extra_body');
  });

  it.each([
    [{ stream: true }, 'stream'],
    [{ previous_response_id: 'resp_1' }, 'previous_response_id'],
    [{ background: true }, 'background'],
    [{ truncation: 'auto' }, 'truncation'],
    [{ include: ['file_search_call.results'] }, 'include'],
    [{ tools: [{ type: 'web_search' }] }, 'tools'],
    [{ text: { format: { type: 'json_schema' } } }, 'text'],
    [{ reasoning: { effort: 'low' } }, 'reasoning'],
    [{ top_logprobs: 2 }, 'top_logprobs'],
    [{ max_tokens: 5 }, 'max_tokens'],
  ])('with %o is refused as unsupported, naming the parameter', (more, param) => {
    const [where, code] = refusal(() => responses(more));
    expect([where, code]).toEqual([param, 'unsupported_parameter']);
  });

  it('refuses items that it cannot read, and a function without a good name', () => {
    expect(refusal(() => responses({ input: [{ type: 'item_reference', id: 'x' }] }))[0]).toBe('input[0]');
    expect(refusal(() => responses({ input: [{ type: 'function_call', name: 'add' }] }))[0]).toBe('input[0]');
    expect(refusal(() => responses({ tools: [{ type: 'function', name: 'a b' }] }))[1]).toBe('invalid_value');
  });
});

describe('a tokenize request', () => {
  it('reads messages as the chat request does, or a plain text', () => {
    expect(readTokenizeRequest(JSON.stringify({ messages: hi, tools: [tool] }))).toEqual({
      model: null,
      conversation: chat({ tools: [tool] }).conversation,
    });
    expect(readTokenizeRequest('{"prompt":"Hi","model":"m"}')).toEqual({ model: 'm', prompt: 'Hi' });
  });
});
