// Everything between text and token ids for one checkpoint: tokenizer.json and its chat template, as one object.
// Not a token stream: ids that were sampled are never encoded again. Invariant: only control tokens that the template
// itself writes become control ids; environment and user text is tokenised with added tokens off.
import { sha256HexAsync } from '../lib/sha256.ts';
import type { Part } from './added-tokens.ts';
import { type ChatTemplate, type Conversation, compileTemplate } from './chat-template.ts';
import { fileFault } from './file-fault.ts';
import type { FileSource } from './file-source.ts';
import { encodeRuns, type SourcedIds } from './source-runs.ts';
import { endingIds, readTextFiles } from './text-files.ts';
import { loadTokenizer, type Tokenizer } from './tokenizer.ts';
import { type ToolSuffix, toolSuffixOf } from './tool-suffix.ts';

export interface Text {
  /** Where the files lie, for messages. */
  label: string;
  tokenizerSha256: string;
  /** SHA-256 of the template's text, or null where the checkpoint has none. */
  templateSha256: string | null;
  /** One more than the highest token id; rows of the embedding from here on stand for nothing. */
  vocabularySize: number;
  /** Ids below vocabularySize that stand for nothing, ascending. */
  missingIds: readonly number[];
  /** The id of <|im_end|>, or null. */
  imEndId: number | null;
  /** Ids that end a turn, after which a tool suffix may follow. */
  stopIds: readonly number[];
  /** Ids that end the episode: <|endoftext|> and the checkpoint's other eos ids. */
  endIds: readonly number[];
  /** Ids that belong before a plain document (`<|begin_of_text|>`); most tokenizers have none. */
  documentPrefixIds: readonly number[];
  /** The id of an added token by its text, or null. */
  addedTokenId(content: string): number | null;
  /** Ids of text whose control tokens count: only for template output and trusted files. */
  encodeTrusted(text: string): number[];
  /** Ids of environment or user text: `<|im_end|>` in it becomes ordinary pieces. */
  encodeContent(text: string): number[];
  /** Text of ids, control tokens included; invalid UTF-8 becomes U+FFFD. [] gives ''. */
  decode(ids: readonly number[]): string;
  /** The bytes of one id. Throws ModelFileError for an id that does not exist. */
  bytesOf(id: number): Uint8Array;
  /** The template's text for a conversation. */
  renderText(conversation: Conversation): string;
  /** Ids of a conversation. `trusted`: control tokens in its contents count too, as in transformers. */
  renderPrompt(conversation: Conversation & { trusted?: boolean }): number[];
  /** Ids between a turn that ended in a stop id and the next assistant turn; one observation a call, in call order. */
  toolSuffix(observations: readonly string[], enableThinking?: boolean): number[];
  /** The same with the source of each id: `observation` where it holds any of an observation's bytes. */
  toolSuffixParts(observations: readonly string[], enableThinking?: boolean): SourcedIds;
}

/** Reads tokenizer.json, tokenizer_config.json, the chat template and the eos ids. Throws ModelFileError. */
export async function loadText(source: FileSource): Promise<Text> {
  const tokenizer = await loadTokenizer(source);
  const files = await readTextFiles(source);
  const { label } = source;
  const template =
    files.templates && compileTemplate(files.templates, files.variables, tokenizer.matcher, `${label}'s chat template`);
  const tokenOf = new Map(tokenizer.added.map((token) => [token.content, token]));
  const { stopToken, stopIds, endIds } = endingIds(tokenizer, template, files);
  const suffixes = new Map<string, ToolSuffix>();

  function needTemplate(): ChatTemplate {
    if (template) return template;
    throw fileFault('no-chat-template', {
      doing: `rendering a conversation with ${label}`,
      found: 'neither chat_template.jinja nor a chat_template in tokenizer_config.json',
      wanted: 'a chat template',
      remedy: 'Use an instruction-tuned checkpoint, or give plain text instead of messages.',
    });
  }

  function toolSuffixParts(observations: readonly string[], enableThinking?: boolean): SourcedIds {
    if (observations.length === 0) return { ids: [], sources: [] };
    const key = `${observations.length} ${enableThinking}`;
    let suffix = suffixes.get(key);
    if (!suffix) {
      suffix = toolSuffixOf(needTemplate(), stopToken ?? '', observations.length, enableThinking, label);
      suffixes.set(key, suffix);
    }
    return encodeRuns(tokenizer, suffix(observations));
  }

  return {
    label,
    tokenizerSha256: tokenizer.sha256,
    templateSha256: template && (await sha256HexAsync(template.source)),
    vocabularySize: tokenizer.vocabularySize,
    missingIds: tokenizer.missingIds,
    imEndId: tokenOf.get('<|im_end|>')?.id ?? null,
    stopIds,
    endIds,
    documentPrefixIds: tokenizer.leadingIds,
    addedTokenId: (content) => tokenOf.get(content)?.id ?? null,
    encodeTrusted: (text) => encodeParts(tokenizer, tokenizer.matcher.split(text)),
    encodeContent: (text) => tokenizer.encodeOrdinary(text),
    decode: (ids) => decode(tokenizer, ids),
    bytesOf: tokenizer.bytesOf,
    renderText: (conversation) => needTemplate().render(conversation).text,
    renderPrompt({ trusted, ...conversation }) {
      const { text, forged } = needTemplate().render(conversation);
      const starts = new Set(trusted ? [] : forged.map((span) => span.start));
      return encodeParts(
        tokenizer,
        tokenizer.matcher.split(text, (found) => !starts.has(found.start)),
      );
    },
    toolSuffix: (observations, enableThinking) => toolSuffixParts(observations, enableThinking).ids,
    toolSuffixParts,
  };
}

/** Ids of text that is already cut at the added tokens that count. */
function encodeParts(tokenizer: Tokenizer, parts: readonly Part[]): number[] {
  return parts.flatMap((part) => ('token' in part ? [part.token.id] : tokenizer.encodeOrdinary(part.text)));
}

function decode(tokenizer: Tokenizer, ids: readonly number[]): string {
  const pieces = ids.map((id) => tokenizer.bytesOf(id));
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}
