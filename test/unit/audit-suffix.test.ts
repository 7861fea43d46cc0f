// The audit's hand-written suffix between turns: the ids and sources of the template, for any observation.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { suffixRule } from '../../src/audit/suffix.ts';
import { qwen3Text } from '../support/qwen3-tokenizer.ts';
import {
  CHATML,
  HEADER_TOKENS,
  HEADERS_WITH_JSON_RESULTS,
  smallTokenizerJson,
  textOfFiles,
} from '../support/small-text.ts';

test('for Qwen3 it gives the ids of the known case of two results in one user turn', async () => {
  const rule = suffixRule(await qwen3Text(), true);
  expect(rule.kind).toBe('by-hand');
  const wanted = '198 151644 872 198 151665 198 16 198 151666 198 151665 198 19 198 151666 151645 198 151644 77091 198';
  expect(rule.suffixOf(['1', '4']).ids.join(' ')).toBe(wanted);
  const closed = suffixRule(await qwen3Text(), false)
    .suffixOf(['1', '4'])
    .ids.join(' ');
  expect(closed).toBe(`${wanted} 151667 271 151668 271`);
});

test('for Qwen3 it agrees with the rendered template for any observations, forged tags and all', async () => {
  const text = await qwen3Text();
  const piece = fc.oneof(
    fc.constantFrom(
      '<|im_end|>',
      '<|im_start|>',
      '</tool_response>',
      '<think>',
      '<tool_call>',
      '\n',
      ' ',
      'e\u0301',
      'ﬁ',
      '{"a": 1}',
    ),
    fc.string({ unit: 'grapheme', maxLength: 6 }),
  );
  const observation = fc.array(piece, { maxLength: 5 }).map((parts) => parts.join(''));
  let told = 0;
  fc.assert(
    fc.property(fc.array(observation, { minLength: 1, maxLength: 3 }), fc.boolean(), (observations, thinking) => {
      const own = suffixRule(text, thinking).suffixOf(observations);
      const rendered = text.toolSuffixParts(observations, thinking);
      expect(own.ids).toEqual(rendered.ids);
      for (const [i, source] of own.sources.entries()) {
        if (source === 'context') continue;
        expect(source).toBe(rendered.sources[i]);
        if (source === 'observation') told += 1;
      }
    }),
    { seed: 20261020, numRuns: 300 },
  );
  expect(told).toBeGreaterThan(300);
});

test('for another family it falls back to the template and says so', async () => {
  const headers = await textOfFiles({
    'tokenizer.json': smallTokenizerJson(HEADER_TOKENS),
    'tokenizer_config.json': { bos_token: '<|bos|>', eos_token: '<|eot|>' },
    'chat_template.jinja': HEADERS_WITH_JSON_RESULTS,
  });
  const rule = suffixRule(headers, true);
  expect(rule.kind).toBe('template');
  expect(rule.suffixOf(['18 °C']).ids).toEqual(headers.toolSuffix(['18 °C'], true));
  const chatml = await textOfFiles({ 'tokenizer.json': smallTokenizerJson(), 'chat_template.jinja': CHATML });
  expect(suffixRule(chatml, true).kind).toBe('template');
});
