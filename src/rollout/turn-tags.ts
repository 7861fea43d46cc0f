// Finds the tags of a sampled turn (<tool_call>, <think> and their ends) in its ids, with their places in its text.
// Not a parser: which tags count is decided in tool-calls.ts.
// Invariant, the one rule for tags: where the tokenizer has added tokens for a pair of tags, only those ids are tags,
// and the same letters sampled as ordinary pieces are plain text; where it has none, the letters are the tag.
import { createStreamDecoder } from '../model/stream-decoder.ts';
import type { Text } from '../model/text.ts';

export type TagKind = 'call' | 'call-end' | 'think' | 'think-end';

export interface Tag {
  kind: TagKind;
  /** [start, end) in the turn's text. */
  start: number;
  end: number;
  /** [firstToken, endToken) in the turn's ids. */
  firstToken: number;
  endToken: number;
}

export interface TaggedTurn {
  text: string;
  /** Whether the tokens [firstToken, endToken) are not UTF-8, so that their text holds U+FFFD that was not sampled. */
  damaged(firstToken: number, endToken: number): boolean;
  /** In order of their place. */
  tags: Tag[];
  /** The first token that is not wholly before `offset` of the text. */
  tokenAt(offset: number): number;
}

const PAIRS: [[TagKind, string], [TagKind, string]][] = [
  [
    ['call', '<tool_call>'],
    ['call-end', '</tool_call>'],
  ],
  [
    ['think', '<think>'],
    ['think-end', '</think>'],
  ],
];

/** Text and tags of sampled ids (without the stop token). */
export function tagTurn(ids: readonly number[], text: Text): TaggedTurn {
  const decoder = createStreamDecoder(text);
  // ends[i] is the length of the text that the first i + 1 tokens have completed.
  const ends: number[] = [];
  let decoded = '';
  for (const id of ids) {
    decoded += decoder.push(id);
    ends.push(decoded.length);
  }
  decoded += decoder.end();
  if (ends.length > 0) ends[ends.length - 1] = decoded.length;

  const tokenAt = (offset: number) => {
    const found = ends.findIndex((end) => end > offset);
    return found < 0 ? ids.length : found;
  };

  const tags: Tag[] = [];
  for (const pair of PAIRS) {
    const tagIds = pair.map(([, spelling]) => text.addedTokenId(spelling));
    const byId = tagIds.every((id) => id !== null);
    for (const [which, [kind, spelling]] of pair.entries()) {
      if (byId) {
        ids.forEach((id, token) => {
          if (id !== tagIds[which]) return;
          const end = ends[token]!;
          tags.push({ kind, start: end - spelling.length, end, firstToken: token, endToken: token + 1 });
        });
        continue;
      }
      for (let start = decoded.indexOf(spelling); start >= 0; start = decoded.indexOf(spelling, start + 1)) {
        const end = start + spelling.length;
        tags.push({ kind, start, end, firstToken: tokenAt(start), endToken: tokenAt(end - 1) + 1 });
      }
    }
  }
  tags.sort((a, b) => a.start - b.start);
  const damaged = (firstToken: number, endToken: number) => {
    const part = createStreamDecoder(text);
    for (const id of ids.slice(firstToken, endToken)) part.push(id);
    part.end();
    return part.damaged();
  };
  return { text: decoded, damaged, tags, tokenAt };
}
