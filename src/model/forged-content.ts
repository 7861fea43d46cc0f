// Tells the control tokens that a chat template writes from spellings of them in the conversation's contents.
// Not a filter: nothing is taken out; the tokenizer is told which spellings are ordinary text.
// Invariant: a spelling inside a user, system or tool text, or in a tool's description, never becomes a control token.
import type { AddedTokenMatcher } from './added-tokens.ts';
import { fileFault } from './file-fault.ts';

/** [start, end) in code units. */
export interface Span {
  start: number;
  end: number;
}

/** Rewrites one text of a conversation. `said`: an assistant's words, whose reasoning tags the template reads. */
export type MapContent = (content: string, said: boolean) => string;

type Side = 'before' | 'after';

/** Tags of a reasoning block. In an assistant's words they count, as in the reference renderer. */
const REASONING_TAGS = ['<think>', '</think>'];

/** Three characters of the private use area that do not occur in `text`. */
export function unusedCharacters(text: string): [string, string, string] {
  const free: string[] = [];
  for (let code = 0xe000; free.length < 3; code++) {
    const character = String.fromCharCode(code);
    if (!text.includes(character)) free.push(character);
  }
  return free as [string, string, string];
}

/**
 * Where the rendering `text` spells a control token that came from the contents. The conversation is rendered again
 * with a mark beside each such spelling in the contents; what then stands beside no mark is the template's own. The marks
 * must not change what the template does (it may test how a content begins or ends): if the text without its marks is
 * not `text`, the side of each mark is chosen by trial, and if neither side serves, ModelFileError is thrown.
 */
export function findForged(
  text: string,
  marks: { before: string; after: string },
  rerender: (mapContent: MapContent) => string,
  matcher: AddedTokenMatcher,
  label: string,
): Span[] {
  // Spellings are numbered in the order in which the contents are visited, which is the same in each rendering.
  let count = 0;
  const render = (sideOf: (index: number, atEnd: boolean) => Side | null) => {
    count = 0;
    return rerender((content, said) => {
      let marked = '';
      let done = 0;
      for (const { token, start, end } of matcher.find(content)) {
        if (said && REASONING_TAGS.includes(token.content)) continue;
        const side = sideOf(count++, end === content.length && start > 0);
        marked += content.slice(done, start) + (side === 'before' ? marks.before : '');
        marked += token.content + (side === 'after' ? marks.after : '');
        done = end;
      }
      return marked + content.slice(done);
    });
  };
  const keepsText = (marked: string) => marked.replaceAll(marks.before, '').replaceAll(marks.after, '') === text;

  let marked = render((_, atEnd) => (atEnd ? 'before' : 'after'));
  if (count === 0) return [];
  if (!keepsText(marked)) {
    const sides = Array.from({ length: count }, (_, index) => {
      const alone = (side: Side) => render((other) => (other === index ? side : null));
      return keepsText(alone('after')) ? 'after' : 'before';
    });
    marked = render((index) => sides[index]!);
  }
  if (keepsText(marked)) return markedSpans(marked, marks, matcher);
  throw fileFault('control-token-in-content', {
    doing: `rendering ${label}`,
    found: 'contents that spell control tokens where the template reads them as its own',
    wanted: 'contents that can be told from the template',
    remedy: 'Take the control tokens out of the messages.',
  });
}

/** Spans, in the text without marks, of the spellings that stand beside a mark. */
function markedSpans(marked: string, marks: { before: string; after: string }, matcher: AddedTokenMatcher): Span[] {
  const spans: Span[] = [];
  let removed = 0;
  let seen = 0;
  for (const { start, end } of matcher.find(marked)) {
    for (; seen < start; seen++) if (marked[seen] === marks.before || marked[seen] === marks.after) removed++;
    if (marked[start - 1] === marks.before || marked[end] === marks.after) {
      spans.push({ start: start - removed, end: end - removed });
    }
  }
  return spans;
}
