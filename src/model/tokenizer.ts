// tokenizer.json -> ids and back. Text is cut at the added tokens that the caller lets count; what lies between goes
// through byte-level BPE. Not a chat template. Invariants: decode is a pure concatenation of each id's bytes; ordinary
// text never yields the id of an added token.
import { Tokenizer as Bpe } from '@huggingface/tokenizers';
import { sha256HexAsync } from '../lib/sha256.ts';
import { type AddedToken, type AddedTokenMatcher, addedTokenMatcher } from './added-tokens.ts';
import { bytesOfPiece } from './byte-level.ts';
import { fileFault, showValue } from './file-fault.ts';
import { type FileSource, missingFile } from './file-source.ts';
import { parseJsonBytes } from './json-file.ts';
import { leadingIds, supportedTokenizer } from './tokenizer-components.ts';

export interface Tokenizer {
  /** The file, for messages. */
  file: string;
  sha256: string;
  matcher: AddedTokenMatcher;
  added: readonly AddedToken[];
  /** One more than the highest id. */
  vocabularySize: number;
  /** Ids below vocabularySize that no token has, ascending. */
  missingIds: readonly number[];
  /** Ids that the file's post-processor puts before a plain document. */
  leadingIds: readonly number[];
  /** Ids of text in which no added token counts. */
  encodeOrdinary(text: string): number[];
  /** Text after the file's Unicode normalisation, as encodeOrdinary sees it. */
  normalise(text: string): string;
  /** The bytes of an id: UTF-8, perhaps part of a character. Throws ModelFileError for an id that does not exist. */
  bytesOf(id: number): Uint8Array;
}

const FILE = 'tokenizer.json';

/** Reads and checks tokenizer.json. Throws ModelFileError that names the component or entry which cannot be used. */
export async function loadTokenizer(source: FileSource): Promise<Tokenizer> {
  const size = await source.size(FILE);
  if (size === null) throw missingFile(source.label, FILE, await source.list());
  const bytes = await source.read(FILE, 0, size);
  const file = `${source.label}/${FILE}`;
  const doing = `reading ${file}`;
  const json = parseJsonBytes(bytes, doing) as Record<string, unknown>;
  const config = supportedTokenizer(json, doing);
  const vocabulary = (config['model'] as { vocab?: Record<string, number> }).vocab ?? {};
  const added = readAddedTokens(json['added_tokens'], vocabulary, config['normalizer'] !== null, doing);
  const table = byteTable(vocabulary, added, doing);
  const bpe = construct(config, doing);
  const matcher = addedTokenMatcher(added);
  const addedIds = new Set(added.map((token) => token.id));

  const normalise = (text: string) => bpe.normalizer?.normalize(text) ?? text;

  return {
    file,
    sha256: await sha256HexAsync(bytes),
    matcher,
    added,
    vocabularySize: table.length,
    missingIds: Array.from(table.keys()).filter((id) => table[id] === null),
    leadingIds: leadingIds(json, doing),
    normalise,
    encodeOrdinary(text) {
      if (text === '') return [];
      const ids = bpe.encode(text, { add_special_tokens: false }).ids;
      checkEncoding(ids, text, normalise(text), table, addedIds, file);
      return ids;
    },
    bytesOf(id) {
      const found = table[id];
      if (found) return found;
      throw fileFault('unknown-token-id', {
        doing: `decoding with ${file}`,
        found: `token id ${id}`,
        wanted: `an id of the vocabulary, below ${table.length}`,
        remedy: 'The ids come from another tokenizer, or rows past the vocabulary were sampled.',
      });
    },
  };
}

function construct(config: Record<string, unknown>, doing: string): Bpe {
  try {
    return new Bpe(config, {});
  } catch (cause) {
    throw fileFault('unsupported-tokenizer', {
      doing,
      found: cause instanceof Error ? cause.message : String(cause),
      wanted: 'components and patterns that @huggingface/tokenizers can build',
      remedy: 'Get the file again, or use a checkpoint with another tokenizer.',
      cause,
    });
  }
}

/** Refuses an encoding that lost bytes (a vocabulary without some byte) or that holds an added token. */
function checkEncoding(
  ids: readonly number[],
  text: string,
  normalised: string,
  table: readonly (Uint8Array | null)[],
  addedIds: ReadonlySet<number>,
  file: string,
): void {
  let length = 0;
  for (const id of ids) {
    length += table[id]?.length ?? Number.NaN;
    if (addedIds.has(id)) {
      throw fileFault('control-id-in-content', {
        doing: `encoding ${showValue(text)} with ${file}`,
        found: `the added token ${id} made of ordinary pieces`,
        wanted: 'ordinary tokens only',
        remedy: 'Take the text out of the data, or use a tokenizer whose merges cannot spell its control tokens.',
      });
    }
  }
  if (length === new TextEncoder().encode(normalised).length) return;
  throw fileFault('untokenisable-text', {
    doing: `encoding ${showValue(text)} with ${file}`,
    found: `${ids.length} tokens that do not spell the text`,
    wanted: 'a token for each byte',
    remedy: 'The vocabulary lacks a byte of the byte alphabet; use a complete byte-level tokenizer.',
  });
}

function readAddedTokens(
  list: unknown,
  vocabulary: Record<string, number>,
  normalizes: boolean,
  doing: string,
): AddedToken[] {
  const remedy = 'Get the file again from its publisher, or use a checkpoint with another tokenizer.';
  const tokens: AddedToken[] = [];
  for (const entry of (list ?? []) as Record<string, unknown>[]) {
    const { id, content } = entry;
    const fault = (found: string, wanted: string) =>
      fileFault('unsupported-tokenizer', {
        doing,
        found: `added token ${showValue(content)} ${found}`,
        wanted,
        remedy,
      });
    if (typeof content !== 'string' || content === '') throw fault('', 'a text');
    if (typeof id !== 'number' || !Number.isSafeInteger(id) || id < 0) throw fault(`with id ${showValue(id)}`, 'an id');
    if (entry['single_word'] === true) throw fault('with single_word', 'single_word false');
    if (entry['normalized'] === true && normalizes)
      throw fault('with normalized', 'normalized false beside a normalizer');
    const inVocabulary = Object.hasOwn(vocabulary, content) ? vocabulary[content] : id;
    if (inVocabulary !== id) throw fault(`with id ${id}, which the vocabulary has as ${inVocabulary}`, 'one id');
    const flag = (key: string) => entry[key] === true;
    tokens.push({ id, content, special: flag('special'), lstrip: flag('lstrip'), rstrip: flag('rstrip') });
  }
  return tokens;
}

/** Bytes of every id; null where there is none. Added tokens are their own text. */
function byteTable(
  vocabulary: Record<string, number>,
  added: readonly AddedToken[],
  doing: string,
): (Uint8Array | null)[] {
  const table: (Uint8Array | null)[] = [];
  const owner = new Map<number, string>();
  const put = (id: number, name: string, bytes: Uint8Array | null) => {
    const other = owner.get(id);
    if (!Number.isSafeInteger(id) || id < 0 || bytes === null || (other !== undefined && other !== name)) {
      throw fileFault('bad-vocabulary', {
        doing,
        found:
          other === undefined ? `the entry ${showValue(name)} with id ${id}` : `id ${id} for ${other} and for ${name}`,
        wanted: 'byte-level pieces, each with an id of its own',
        remedy: 'Get the file again, or use a checkpoint with a byte-level BPE tokenizer.',
      });
    }
    owner.set(id, name);
    while (table.length <= id) table.push(null);
    table[id] = bytes;
  };
  const addedContents = new Set(added.map((token) => token.content));
  for (const [piece, id] of Object.entries(vocabulary)) {
    if (!addedContents.has(piece)) put(id, piece, bytesOfPiece(piece));
  }
  for (const { id, content } of added) put(id, content, new TextEncoder().encode(content));
  return table;
}
