// A small byte-level tokenizer with any chat template, as files in memory: other families than Qwen3, and broken files.
import { pieceOfBytes } from '../../src/model/byte-level.ts';
import { memorySource } from '../../src/model/file-source.ts';
import { loadText, type Text } from '../../src/model/text.ts';

/** tokenizer.json: the byte alphabet as ids 0 to 255, then merges, then added tokens. Parts can be replaced. */
export function smallTokenizerJson(
  addedTokens: readonly string[] = ['<|im_start|>', '<|im_end|>'],
  merges: readonly [string, string][] = [],
  parts: Record<string, unknown> = {},
): Record<string, unknown> {
  const pieces = Array.from({ length: 256 }, (_, byte) => pieceOfBytes(Uint8Array.of(byte)));
  pieces.push(...merges.map((pair) => pair.join('')));
  return {
    version: '1.0',
    added_tokens: addedTokens.map((content, index) => ({ id: pieces.length + index, content, special: true })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])), merges },
    ...parts,
  };
}

/** Text from files: values that are no strings are written as JSON. */
export function textOfFiles(files: Record<string, unknown>): Promise<Text> {
  const bytes = Object.entries(files).map(([name, content]) => {
    return [name, new TextEncoder().encode(typeof content === 'string' ? content : JSON.stringify(content))] as const;
  });
  return loadText(memorySource('memory', Object.fromEntries(bytes)));
}

/** ChatML without tools, as SmolLM2's template. */
export const CHATML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;

/** Header-style turns with tools whose results are printed as JSON, in the manner of Llama 3.1. */
export const HEADERS_WITH_JSON_RESULTS = `{{- bos_token }}{%- if not date is defined %}{%- if strftime_now is defined %}{%- set date = strftime_now('%d %b %Y') %}{%- else %}{%- set date = '26 Jul 2024' %}{%- endif %}{%- endif %}{{- '<|head|>system<|/head|>\\n\\nToday ' + date }}{%- if tools is not none %}{%- for t in tools %}{{- '\\n' + (t | tojson) }}{%- endfor %}{%- endif %}{{- '<|eot|>' }}
{%- for message in messages %}
{%- if message.tool_calls %}{%- if not message.tool_calls|length == 1 %}{{- raise_exception('one call at a time') }}{%- endif %}{%- set call = message.tool_calls[0].function %}{{- '<|head|>assistant<|/head|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- '}<|eot|>' }}
{%- elif message.role == 'tool' %}{{- '<|head|>ipython<|/head|>\\n\\n' }}{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- '<|eot|>' }}
{%- else %}{{- '<|head|>' + message.role + '<|/head|>\\n\\n' + message.content | trim + '<|eot|>' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{%- endif %}`;

/** Added tokens of HEADERS_WITH_JSON_RESULTS. */
export const HEADER_TOKENS = ['<|bos|>', '<|head|>', '<|/head|>', '<|eot|>', '<|eom|>'];
