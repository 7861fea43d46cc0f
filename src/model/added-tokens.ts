// Finds added tokens (`<|im_end|>`, `<tool_call>` ...) in text: leftmost first, longest at one place.
// Not a tokenizer. Invariant: the parts, joined, are the text, but for space that an lstrip or rstrip token takes in.

export interface AddedToken {
  id: number;
  content: string;
  special: boolean;
  /** The token takes in white space before (after) it. */
  lstrip: boolean;
  rstrip: boolean;
}

/** A stretch of text between added tokens, or one added token at [start, end) in code units. */
export type Part = { text: string } | { token: AddedToken; start: number; end: number };

export interface AddedTokenMatcher {
  /** All occurrences, in order. */
  find(text: string): { token: AddedToken; start: number; end: number }[];
  /** `text` cut at the occurrences that `accept` accepts; the others stay ordinary text. */
  split(text: string, accept?: (occurrence: { start: number; end: number }) => boolean): Part[];
}

/** A matcher for `tokens`. */
export function addedTokenMatcher(tokens: readonly AddedToken[]): AddedTokenMatcher {
  // In an alternation the first that matches wins, so longer contents go first.
  const contents = tokens.map((token) => token.content).sort((a, b) => b.length - a.length || (a < b ? -1 : 1));
  const byContent = new Map(tokens.map((token) => [token.content, token]));
  const escaped = contents.map((content) => content.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&'));
  const pattern = escaped.length === 0 ? '(?!)' : escaped.join('|');

  function find(text: string) {
    return [...text.matchAll(new RegExp(pattern, 'g'))].map((match) => ({
      token: byContent.get(match[0])!,
      start: match.index,
      end: match.index + match[0].length,
    }));
  }

  return {
    find,
    split(text, accept = () => true) {
      const parts: Part[] = [];
      let done = 0;
      for (const found of find(text)) {
        if (found.start < done || !accept(found)) continue;
        let between = text.slice(done, found.start);
        if (found.token.lstrip) between = between.trimEnd();
        if (between !== '') parts.push({ text: between });
        parts.push(found);
        done = found.end;
        if (found.token.rstrip) done = text.length - text.slice(done).trimStart().length;
      }
      if (done < text.length) parts.push({ text: text.slice(done) });
      return parts;
    },
  };
}
