// tokenizer.json: what is refused, by name, and what byte-level families beyond Qwen3 encode to.
import { describe, expect, test } from 'vitest';
import { ModelFileError } from '../../src/lib/errors.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { loadText } from '../../src/model/text.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import { smallTokenizerJson, textOfFiles } from '../support/small-text.ts';

const withParts = (parts: Record<string, unknown>) =>
  textOfFiles({ 'tokenizer.json': smallTokenizerJson(undefined, undefined, parts) });

const modelWith = (entries: Record<string, unknown>) => ({
  model: { ...(smallTokenizerJson()['model'] as object), ...entries },
});

describe('a tokenizer with an unsupported component is refused at load, and the component is named', () => {
  const cases: [string, Record<string, unknown>, string][] = [
    ['model', modelWith({ type: 'Unigram' }), 'model "Unigram"'],
    ['byte fallback', modelWith({ byte_fallback: true }), 'byte_fallback'],
    ['drop-out', modelWith({ dropout: 0.1 }), 'dropout = 0.1'],
    [
      'normalizer',
      { normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }] } },
      'normalizer "Prepend"',
    ],
    ['pre-tokenizer', { pre_tokenizer: { type: 'Metaspace' } }, 'pre_tokenizer "Metaspace"'],
    ['prefix space', { pre_tokenizer: { type: 'ByteLevel', add_prefix_space: true } }, 'add_prefix_space'],
    [
      'split behaviour',
      { pre_tokenizer: { type: 'Split', pattern: { Regex: 'a' }, behavior: 'MergedWithNext', invert: false } },
      'pre_tokenizer Split MergedWithNext',
    ],
    ['no bytes', { pre_tokenizer: { type: 'Digits', individual_digits: true } }, 'without ByteLevel'],
    ['no pre-tokenizer', { pre_tokenizer: null }, 'without ByteLevel'],
    ['decoder', { decoder: { type: 'WordPiece' } }, 'decoder "WordPiece"'],
    ['post-processor', { post_processor: { type: 'BertProcessing' } }, 'post_processor "BertProcessing"'],
    ['single word', { added_tokens: [{ id: 256, content: 'x y', single_word: true }] }, 'single_word'],
    [
      'normalized added token',
      { normalizer: { type: 'NFC' }, added_tokens: [{ id: 256, content: 'x y', normalized: true }] },
      'added token "x y" with normalized',
    ],
    [
      'bad pattern',
      {
        pre_tokenizer: {
          type: 'Sequence',
          pretokenizers: [
            { type: 'Split', pattern: { Regex: '(' }, behavior: 'Isolated' },
            { type: 'ByteLevel', use_regex: false },
          ],
        },
      },
      'Unterminated group',
    ],
  ];
  test.each(cases)('%s', async (_, parts, named) => {
    const refused = withParts(parts);
    await expect(refused).rejects.toBeInstanceOf(ModelFileError);
    await expect(refused).rejects.toThrow(named);
    await expect(refused).rejects.toThrow('memory/tokenizer.json');
  });

  test('the same file without a fault loads', async () => {
    expect((await withParts({})).vocabularySize).toBe(258);
  });
});

test('a missing tokenizer.json is an error that names the file', async () => {
  await expect(loadText(memorySource('some/folder', {}))).rejects.toThrowErrorMatchingInlineSnapshot(
    `[ModelFileError: reading some/folder/tokenizer.json: found an empty folder; wanted the file. Check the path, or copy the missing file into the folder.]`,
  );
});

test('two pieces with one id, and an added token against the vocabulary, are refused', async () => {
  const vocab = (smallTokenizerJson()['model'] as { vocab: Record<string, number> }).vocab;
  await expect(withParts(modelWith({ vocab: { ...vocab, ab: 97 } }))).rejects.toThrow('id 97');
  await expect(withParts({ added_tokens: [{ id: 300, content: 'a' }] })).rejects.toThrow('added token "a" with id 300');
});

test('ids that no token has are listed, and decoding one is an error', async () => {
  const text = await withParts({ added_tokens: [{ id: 259, content: '<|im_end|>', special: true }] });
  expect(text.vocabularySize).toBe(260);
  expect(text.missingIds).toEqual([256, 257, 258]);
  expect(() => text.decode([258])).toThrow('token id 258');
  expect(() => text.decode([260])).toThrow('token id 260');
});

test('a character whose bytes the vocabulary lacks is an error, not a silent loss', async () => {
  const vocab = { ...(smallTokenizerJson()['model'] as { vocab: Record<string, number> }).vocab };
  delete vocab['Ã'];
  const text = await withParts(modelWith({ vocab }));
  expect(text.decode(text.encodeContent('abc'))).toBe('abc');
  expect(() => text.encodeContent('ü')).toThrow('do not spell the text');
});

test('digits and white space are cut as in the reference, where JavaScript patterns would differ', async () => {
  // Ids by tokenizers 0.23 (Python) for the same file.
  const space = 32;
  const merges: [string, string][] = [
    ['Ġ', 'Â'],
    ['¿', '!'],
    ['1', '2'],
  ];
  const digits = {
    type: 'Sequence',
    pretokenizers: [{ type: 'Digits', individual_digits: true }, { type: 'ByteLevel' }],
  };
  const plain = await textOfFiles({ 'tokenizer.json': smallTokenizerJson([], merges) });
  const split = await textOfFiles({ 'tokenizer.json': smallTokenizerJson([], merges, { pre_tokenizer: digits }) });
  expect(plain.encodeContent(' ²')).toEqual([256, 0xb2]);
  expect(split.encodeContent(' ²')).toEqual([space, 0xc2, 0xb2]);
  expect(plain.encodeContent('12')).toEqual([258]);
  expect(split.encodeContent('12')).toEqual([0x31, 0x32]);
  // U+FEFF is white space for JavaScript alone, U+0085 for Unicode alone.
  expect(plain.encodeContent('\ufeff!')).toEqual([0xef, 0xbb, 257]);
  expect(plain.encodeContent('\u0085 x')).toEqual([0xc2, 0x85, space, 0x78]);
});

test('the longest added token wins, and white space that a token claims goes into it', async () => {
  const text = await withParts({
    added_tokens: [
      { id: 256, content: '<a>' },
      { id: 257, content: '<a><b>' },
      { id: 258, content: '<s>', lstrip: true, rstrip: true },
    ],
  });
  expect(text.encodeTrusted('<a><a><b>')).toEqual([256, 257]);
  expect(text.encodeTrusted('x \n<s>  y')).toEqual([120, 258, 121]);
  expect(text.encodeContent('<a>')).toEqual([60, 97, 62]);
});

test('a post-processor that puts a token before a document is reported, and encoding does not add it', async () => {
  const text = await withParts({
    added_tokens: [{ id: 256, content: '<|bos|>', special: true }],
    post_processor: {
      type: 'Sequence',
      processors: [
        { type: 'ByteLevel' },
        {
          type: 'TemplateProcessing',
          single: [{ SpecialToken: { id: '<|bos|>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
          pair: [],
          special_tokens: { '<|bos|>': { id: '<|bos|>', ids: [256], tokens: ['<|bos|>'] } },
        },
      ],
    },
  });
  expect(text.documentPrefixIds).toEqual([256]);
  expect(text.encodeTrusted('a')).toEqual([97]);
  expect((await qwen3Text()).documentPrefixIds).toEqual([]);
});

test('Qwen3: ids that exist, end a turn and end an episode', async () => {
  const text = await qwen3Text();
  expect(text.vocabularySize).toBe(151_669);
  expect(text.missingIds).toEqual([]);
  expect(text.imEndId).toBe(151_645);
  expect(text.stopIds).toEqual([151_645]);
  expect(text.endIds).toEqual([151_643]);
});

test('all eos ids of generation_config.json are honoured, and one past the vocabulary is refused', async () => {
  const files = { 'tokenizer.json': smallTokenizerJson(['<|im_end|>', '<|endoftext|>', '<|eom|>']) };
  const config = { eos_token: { content: '<|im_end|>' } };
  const text = await textOfFiles({
    ...files,
    'tokenizer_config.json': config,
    'generation_config.json': { eos_token_id: [256, 258] },
  });
  expect(text.stopIds).toEqual([256]);
  expect(text.endIds).toEqual([257, 258]);
  const bad = textOfFiles({ ...files, 'generation_config.json': { eos_token_id: 4000 } });
  await expect(bad).rejects.toThrow('the eos id 4000');
});

test('decoding nothing gives the empty text', async () => {
  expect((await qwen3Text()).decode([])).toBe('');
  expect((await qwen3Text()).encodeTrusted('')).toEqual([]);
});
