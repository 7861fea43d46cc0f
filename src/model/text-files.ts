// Reads what stands beside tokenizer.json: special tokens, the chat template, and the ids that end a turn or a text.
// Not a renderer. Invariant: chat_template.jinja wins over a template in tokenizer_config.json, as in transformers 5.
import type { ChatTemplate, TemplateVariables } from './chat-template.ts';
import { fileFault, showValue } from './file-fault.ts';
import type { FileSource } from './file-source.ts';
import { readJson } from './json-file.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface TextFiles {
  /** Special tokens by the names that templates use: `bos_token`, `eos_token` ... */
  variables: TemplateVariables;
  /** Template sources by name (`default`, `tool_use`), or null. */
  templates: Record<string, string> | null;
  /** eos ids of generation_config.json and config.json, ascending. */
  eosIds: readonly number[];
}

/** Reads the files that are there; each of them may be absent. Throws ModelFileError for one that is malformed. */
export async function readTextFiles(source: FileSource): Promise<TextFiles> {
  const config = (await optionalJson(source, 'tokenizer_config.json')) ?? {};
  const jinja = await optionalText(source, 'chat_template.jinja');
  const eosIds = new Set<number>();
  for (const name of ['generation_config.json', 'config.json']) {
    const value = (await optionalJson(source, name))?.['eos_token_id'] ?? [];
    for (const id of Array.isArray(value) ? value : [value]) {
      if (!Number.isSafeInteger(id) || id < 0) {
        const found = `eos_token_id = ${showValue(value)}`;
        throw badFile(`reading ${source.label}/${name}`, found, 'a token id or a list of them');
      }
      eosIds.add(id as number);
    }
  }
  return {
    variables: specialTokens(config),
    templates: jinja === null ? inlineTemplates(config['chat_template'], source.label) : { default: jinja },
    eosIds: [...eosIds].sort((a, b) => a - b),
  };
}

/** Special tokens of tokenizer_config.json: a text, or an object with `content` in older files. */
function specialTokens(config: Record<string, unknown>): TemplateVariables {
  const variables: Record<string, string> = {};
  for (const name of ['bos_token', 'eos_token', 'pad_token', 'unk_token']) {
    const value = config[name];
    const content = typeof value === 'string' ? value : (value as { content?: unknown } | null | undefined)?.content;
    if (typeof content === 'string') variables[name] = content;
  }
  return variables;
}

function inlineTemplates(value: unknown, label: string): Record<string, string> | null {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string') return { default: value };
  const list = Array.isArray(value) ? value : [];
  const pairs = list.map((item) => [item?.['name'], item?.['template']]);
  if (pairs.length > 0 && pairs.every((pair) => pair.every((part) => typeof part === 'string'))) {
    return Object.fromEntries(pairs as [string, string][]);
  }
  const found = `chat_template = ${showValue(value)}`;
  throw badFile(`reading ${label}/tokenizer_config.json`, found, 'a template, or a list of {name, template}');
}

/**
 * What ends a turn and what ends an episode. The turn's end is the control token that the template writes after an
 * assistant's words (<|im_end|>, <|eot_id|>), or the eos token where there is no template. All other eos ids, and
 * <|endoftext|> wherever the tokenizer has it, end the episode.
 */
export function endingIds(tokenizer: Tokenizer, template: ChatTemplate | null, files: TextFiles) {
  const idOf = new Map(tokenizer.added.map(({ content, id }) => [content, id]));
  const stopToken = (template && turnEnd(template, tokenizer)) ?? files.variables['eos_token'] ?? null;
  const stopId = stopToken === null ? undefined : idOf.get(stopToken);
  const stopIds = stopId === undefined ? [] : [stopId];
  const ends = [...files.eosIds, idOf.get(files.variables['eos_token'] ?? ''), idOf.get('<|endoftext|>')];
  const endIds = [...new Set(ends)].filter((id): id is number => id !== undefined && !stopIds.includes(id));
  const beyond = endIds.find((id) => id >= tokenizer.vocabularySize);
  if (beyond !== undefined) {
    throw badFile(
      `reading generation_config.json beside ${tokenizer.file}`,
      `the eos id ${beyond}`,
      `an id of the vocabulary, below ${tokenizer.vocabularySize}`,
    );
  }
  return { stopToken, stopIds, endIds: endIds.sort((a, b) => a - b) };
}

/** The first added token after an assistant's words, or null. */
function turnEnd(template: ChatTemplate, tokenizer: Tokenizer): string | null {
  const words = 'dummywords';
  const messages = [
    { role: 'user', content: 'dummy' },
    { role: 'assistant', content: words },
  ];
  const { text } = template.render({ messages, addGenerationPrompt: false });
  const from = text.lastIndexOf(words);
  return from < 0 ? null : (tokenizer.matcher.find(text.slice(from))[0]?.token.content ?? null);
}

async function optionalJson(source: FileSource, name: string): Promise<Record<string, unknown> | null> {
  if ((await source.size(name)) === null) return null;
  const value = await readJson(source, name);
  if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value as Record<string, unknown>;
  throw badFile(`reading ${source.label}/${name}`, showValue(value), 'a JSON object');
}

async function optionalText(source: FileSource, name: string): Promise<string | null> {
  const size = await source.size(name);
  if (size === null) return null;
  const bytes = await source.read(name, 0, size);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw badFile(`reading ${source.label}/${name}`, 'bytes that are not UTF-8', 'a text in UTF-8');
  }
}

function badFile(doing: string, found: string, wanted: string) {
  return fileFault('bad-text-file', { doing, found, wanted, remedy: 'Correct the file, or get it again.' });
}
