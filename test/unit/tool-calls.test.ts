// Parsing of assistant turns: the golden table of hermes-style turns, block boundaries, tokenizers without tag tokens.
import { describe, expect, test } from 'vitest';
import { endsInReasoning, parseTurn } from '../../src/rollout/tool-calls.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import { CHATML, smallTokenizerJson, textOfFiles } from '../support/small-text.ts';

const qwen = await qwen3Text();
const spelled = await textOfFiles({ 'tokenizer.json': smallTokenizerJson(), 'chat_template.jinja': CHATML });
const knownTools = ['calc', 'say'];
const good = '<tool_call>\n{"name": "calc", "arguments": {"a": 1}}\n</tool_call>';

const parse = (turn: string, text = qwen, thinkingOpenedByPrompt = false) =>
  parseTurn({ ids: text.encodeTrusted(turn), text, knownTools, thinkingOpenedByPrompt });

const statuses = (turn: string, text = qwen) => parse(turn, text).calls.map((call) => call.status);

// Each row must hold for a tokenizer with tag tokens and for one where tags are spelled in pieces.
describe.each([
  ['tag tokens', qwen],
  ['tags as letters', spelled],
] as const)('a turn read by %s', (_, text) => {
  test('reasoning and content', () => {
    expect(parse('<think>\nhmm\n</think>\n\nhello', text)).toEqual({
      calls: [],
      reasoning: 'hmm',
      content: 'hello',
      finalText: 'hello',
    });
  });

  test('content before a call', () => {
    const { content, calls } = parse(`I will add.\n${good}<|im_end|>`, text);
    expect(content).toBe('I will add.');
    expect(calls).toMatchObject([{ status: 'ok', name: 'calc', argumentsJson: '{"a": 1}' }]);
  });

  test('two blocks are two calls, in order', () => {
    const { calls } = parse(`${good}\n${good.replace('1', '2')}<|im_end|>`, text);
    expect(calls.map((call) => call.argumentsJson)).toEqual(['{"a": 1}', '{"a": 2}']);
  });

  test('content after a call', () => {
    expect(parse(`${good}\nbye`, text)).toMatchObject({ content: 'bye', calls: [{ status: 'ok' }] });
  });

  test('an unclosed block with complete JSON at the end of the turn is a call, with or without <|im_end|>', () => {
    const open = '<tool_call>\n{"name": "calc", "arguments": {}}';
    expect(parse(`${open}\n<|im_end|>`, text).calls).toMatchObject([{ status: 'ok', argumentsJson: '{}' }]);
    expect(statuses(open, text)).toEqual(['ok']);
  });

  test('an unclosed block is unclosed where its JSON is incomplete, or something else follows', () => {
    expect(statuses('<tool_call>\n{"name": "calc", "argu', text)).toEqual(['unclosed']);
    expect(statuses('<tool_call>\n{"name": "calc", "arguments": {}} done', text)).toEqual(['unclosed']);
    expect(statuses('<tool_call>', text)).toEqual(['unclosed']);
    expect(statuses(`<tool_call>\n{"name": "calc", "arguments": {}}\n${good}`, text)).toEqual(['unclosed', 'ok']);
    expect(statuses(`<tool_call>\n{"name": "calc", "arguments": {"a": "x}}\n${good}`, text)).toEqual([
      'unclosed',
      'ok',
    ]);
  });

  test('a bad block is its own record, and the good ones around it still count', () => {
    const turn = `${good}\n<tool_call>\n{"name": "calc", "arguments": {]}\n</tool_call>\n${good}<|im_end|>`;
    expect(statuses(turn, text)).toEqual(['ok', 'invalid_json', 'ok']);
    const quotes = `<tool_call>{"name": "calc", "arguments": {"a": "x}}</tool_call><tool_call>{"name": "nope", "arguments": {}}</tool_call>${good}`;
    expect(statuses(quotes, text)).toEqual(['invalid_json', 'unknown_tool', 'ok']);
  });

  test.each([
    ['a list', '[{"name": "calc", "arguments": {}}]'],
    ['a string', '"calc"'],
    ['nothing', ''],
    ['no name', '{"arguments": {}}'],
    ['a name that is no text', '{"name": 3, "arguments": {}}'],
    ['a key twice', '{"name": "calc", "name": "say", "arguments": {}}'],
    ['a key twice inside the arguments', '{"name": "calc", "arguments": {"a": {"b": 1, "\\u0062": 2}}}'],
    ['NaN', '{"name": "calc", "arguments": {"a": NaN}}'],
    ['Infinity', '{"name": "calc", "arguments": {"a": -Infinity}}'],
    ['single quotes', "{'name': 'calc', 'arguments': {}}"],
    ['a trailing comma', '{"name": "calc", "arguments": {},}'],
    ['a comment', '{"name": "calc", "arguments": {} /* x */}'],
    ['two objects', '{"name": "calc", "arguments": {}}{"name": "calc", "arguments": {}}'],
  ])('strict JSON: %s is invalid_json', (_, body) => {
    expect(parse(`<tool_call>\n${body}\n</tool_call>`, text).calls).toMatchObject([
      { status: 'invalid_json', argumentsJson: null },
    ]);
  });

  test('arguments that are no object are invalid_json, and their text is kept', () => {
    const withArguments = (raw: string) => parse(`<tool_call>{"name": "calc", "arguments": ${raw}}</tool_call>`, text);
    for (const raw of ['"{}"', '"{\\"a\\": 1}"', '[1]', '3', 'true']) {
      expect(withArguments(raw).calls).toMatchObject([{ status: 'invalid_json', name: 'calc', argumentsJson: raw }]);
    }
    expect(withArguments('null').calls).toMatchObject([{ status: 'missing_arguments', argumentsJson: null }]);
  });

  test('the arguments are the slice that was sampled: spacing, key order, number spelling, escapes', () => {
    const raw = '{"2": 1.0, "1":[1e5 ,{"x":"}\\" ,{"}],  "ü":"\\u00fc", "n":-0}';
    const turn = `<tool_call>{"arguments":${raw} , "id": "7", "name":"calc"}</tool_call>`;
    expect(parse(turn, text).calls).toMatchObject([{ status: 'ok', argumentsJson: raw }]);
  });

  test('an unclosed <think> takes everything, and calls before it do not count either', () => {
    expect(parse(`<think>\n${good}`, text)).toMatchObject({ calls: [], content: '', finalText: '' });
    expect(parse(`${good}<think>hm`, text)).toMatchObject({ calls: [], reasoning: 'hm', finalText: '' });
  });

  test('a call inside a <think> that a broken block contains is not executed', () => {
    expect(parse(`<tool_call>{"name" <think>${good}</think>4`, text)).toMatchObject({
      calls: [{ status: 'unclosed' }],
      finalText: '4',
    });
  });

  test('a </think> that closes nothing is content, and the final text follows it', () => {
    expect(parse('so 42 </think>\n\nAntwort: 41', text)).toEqual({
      calls: [],
      content: 'so 42 </think>\n\nAntwort: 41',
      reasoning: null,
      finalText: 'Antwort: 41',
    });
  });

  test('an empty think block is empty reasoning, not none', () => {
    expect(parse('<think>\n\n</think>\n\n4', text).reasoning).toBe('');
    expect(parse('4', text).reasoning).toBeNull();
  });

  test('an empty turn has nothing', () => {
    expect(parse('', text)).toEqual({ calls: [], content: '', reasoning: null, finalText: '' });
    expect(parse('<|im_end|>', text).content).toBe('');
  });

  test('the spans of blocks cover their tokens exactly', () => {
    const turn = `Ich rechne für ü.\n${good}\n${good}<|im_end|>`;
    const ids = text.encodeTrusted(turn);
    const { calls } = parseTurn({ ids, text, knownTools, thinkingOpenedByPrompt: false });
    expect(calls.map(({ span }) => text.decode(ids.slice(...span)))).toEqual([good, good]);
    const open = text.encodeTrusted(`x${good.slice(0, -14)}<|im_end|>`);
    const [call] = parseTurn({ ids: open, text, knownTools, thinkingOpenedByPrompt: false }).calls;
    expect(text.decode(open.slice(...call!.span))).toBe(good.slice(0, -14));
  });
});

test('a block whose bytes are not UTF-8 is invalid_json, and others are not touched by it', () => {
  const ids = qwen.encodeTrusted(`<tool_call>{"name": "say", "arguments": {"t": "X"}}</tool_call>${good}`);
  const at = ids.indexOf(qwen.encodeContent('X')[0]!);
  const half = 123_918; // the first three bytes of an emoji
  const turn = { text: qwen, knownTools, thinkingOpenedByPrompt: false };
  expect(parseTurn({ ...turn, ids }).calls.map((call) => call.status)).toEqual(['ok', 'ok']);
  const damaged = ids.map((id, index) => (index === at ? half : id));
  expect(parseTurn({ ...turn, ids: damaged }).calls.map((call) => call.status)).toEqual(['invalid_json', 'ok']);
  // A U+FFFD that was sampled as such is a character like any other.
  const genuine = ids.map((id, index) => (index === at ? 5691 : id));
  expect(parseTurn({ ...turn, ids: genuine }).calls.map((call) => call.status)).toEqual(['ok', 'ok']);
});

test('whether a prompt ends inside reasoning is read from its last turn', () => {
  const ends = (prompt: string) => endsInReasoning(qwen.encodeTrusted(prompt), qwen);
  expect(ends('<|im_start|>assistant\n<think>\n')).toBe(true);
  expect(ends('<|im_start|>assistant\n<think>\n\n</think>\n\n')).toBe(false);
  expect(ends('<|im_start|>assistant\n')).toBe(false);
  expect(ends('<think>\nhm<|im_end|>\n<|im_start|>assistant\n')).toBe(false);
});

test('a long run of opened brackets is invalid, not a crash', () => {
  expect(statuses(`<tool_call>${'['.repeat(20_000)}</tool_call>`)).toEqual(['invalid_json']);
});
