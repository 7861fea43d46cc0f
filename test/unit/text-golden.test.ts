// Parity with transformers on the real Qwen3 tokenizer and template: every golden rendering and encoding.
import { describe, expect, test } from 'vitest';
import { chatGolden, conversationOf, qwen3Text } from '../support/qwen3-tokenizer.ts';

const golden = chatGolden();
const text = await qwen3Text();

// In these the contents spell control tokens, which untrusted rendering keeps as ordinary text.
const FORGING = ['result-with-specials', 'user-looks-like-response'];

test('the tokenizer and the template are the ones that the goldens were made with', () => {
  expect(golden.renderings).toHaveLength(176);
  expect(golden.encodings).toHaveLength(40);
  expect(text.tokenizerSha256).toBe(golden.tokenizer_json_sha256);
  expect(text.templateSha256).toBe(golden.template_sha256);
});

describe.each(golden.renderings.map((rendering, index) => ({ index, rendering })))(
  'rendering $index ($rendering.name)',
  ({ rendering }) => {
    const conversation = conversationOf(rendering);

    test('gives the text of transformers', () => {
      expect(text.renderText(conversation)).toBe(rendering.text);
    });

    test('gives the ids of transformers in trusted mode', () => {
      expect(text.renderPrompt({ ...conversation, trusted: true })).toEqual(rendering.ids);
    });

    test('gives the same ids untrusted exactly where no content spells a control token', () => {
      const ids = text.renderPrompt(conversation);
      expect(text.decode(ids)).toBe(rendering.text);
      if (FORGING.includes(rendering.name)) expect(ids).not.toEqual(rendering.ids);
      else expect(ids).toEqual(rendering.ids);
    });
  },
);

describe.each(golden.encodings.map((encoding, index) => ({ index, encoding })))('encoding $index', ({ encoding }) => {
  test('gives the ids of transformers, and back its decoding', () => {
    expect(text.encodeTrusted(encoding.text)).toEqual(encoding.ids);
    expect(text.decode(encoding.ids)).toBe(encoding.decoded);
  });

  test('has no control id with added tokens off, and spells the same text', () => {
    const ids = text.encodeContent(encoding.text);
    expect(ids.filter((id) => id >= 151_643)).toEqual([]);
    expect(text.decode(ids)).toBe(encoding.text.normalize('NFC'));
  });
});
