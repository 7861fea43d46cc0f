// The tokenizer that comes with shaderl, for rollouts whose run does not give one.
// Not a guess that is hidden: the views say where the text comes from. Invariant: it is used only for a stream whose
// ids all exist in it and whose first id is one of its control tokens.

import template from '../fixtures/embedded-policy/chat_template.jinja?raw';
import tokenizer from '../fixtures/embedded-policy/tokenizer.json?raw';
import tokenizerConfig from '../fixtures/embedded-policy/tokenizer_config.json?raw';
import { memorySource } from '../src/model/file-source.ts';
import { loadText, type Text } from '../src/model/text.ts';

let loaded: Promise<Text> | null = null;

export function embeddedText(): Promise<Text> {
  const bytes = (text: string) => new TextEncoder().encode(text);
  loaded ??= loadText(
    memorySource('the embedded policy', {
      'tokenizer.json': bytes(tokenizer),
      'tokenizer_config.json': bytes(tokenizerConfig),
      'chat_template.jinja': bytes(template),
    }),
  );
  return loaded;
}

/** Whether a stream can be of this tokenizer. */
export function fitsText(text: Text, ids: readonly number[]): boolean {
  const [first] = ids;
  return (
    first !== undefined && first === text.addedTokenId('<|im_start|>') && ids.every((id) => id < text.vocabularySize)
  );
}

/** The bytes of each id of a tokenizer; null for an id that stands for nothing. */
export function tokenBytes(text: Text): (id: number) => Uint8Array | null {
  const missing = new Set(text.missingIds);
  return (id) => (id >= 0 && id < text.vocabularySize && !missing.has(id) ? text.bytesOf(id) : null);
}
