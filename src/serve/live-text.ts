// Content and reasoning of a turn while it is being sampled, for a stream.
// Not the parser of the whole turn (rollout/tool-calls.ts): from the first tool call on, what follows waits for it.
// Invariant: what was given so far is a beginning of what that parser gives in the end: nothing is ever taken back.
import { createStreamDecoder } from '../model/stream-decoder.ts';
import type { Text } from '../model/text.ts';

export interface LiveDelta {
  content: string;
  reasoning: string;
}

export interface LiveText {
  /** What the next sampled id makes certain. Stop tokens must not be given. */
  push(id: number): LiveDelta;
  /** The rest, given the content and reasoning of the whole turn. */
  end(whole: { content: string; reasoning: string | null }): LiveDelta;
}

type Tag = 'call' | 'call-end' | 'think' | 'think-end';
const spellings: Record<Tag, string> = {
  call: '<tool_call>',
  'call-end': '</tool_call>',
  think: '<think>',
  'think-end': '</think>',
};

/** Text that is given without white space at its beginning, and white space only once text follows it. */
function trimmer() {
  let blank = '';
  let given = '';
  return {
    add(piece: string): string {
      const text = blank + piece;
      const body = text.trimEnd();
      blank = given === '' && body === '' ? '' : text.slice(body.length);
      const fresh = given === '' ? body.trimStart() : body;
      given += fresh;
      return fresh;
    },
    rest: (whole: string) => (whole.startsWith(given) ? whole.slice(given.length) : ''),
  };
}

/** `thinking`: whether the prompt ends inside an open <think>. */
export function createLiveText(text: Text, thinking: boolean): LiveText {
  const decoder = createStreamDecoder(text);
  const tagOfId = new Map<number, Tag>();
  const letters: Tag[] = [];
  for (const pair of [
    ['call', 'call-end'],
    ['think', 'think-end'],
  ] as const) {
    const ids = pair.map((tag) => text.addedTokenId(spellings[tag]));
    // The rule of turn-tags.ts: where both tags are added tokens, only those ids are tags.
    if (ids.every((id) => id !== null)) for (const [i, tag] of pair.entries()) tagOfId.set(ids[i]!, tag);
    else letters.push(...pair);
  }
  const content = trimmer();
  const reasoning = trimmer();
  let mode: 'content' | 'reasoning' | 'held' = thinking ? 'reasoning' : 'content';
  let thoughts = thinking ? 1 : 0;
  /** Text that may yet turn out to begin a tag. */
  let unsure = '';

  function say(delta: LiveDelta, piece: string): void {
    if (piece === '' || mode === 'held') return;
    if (mode === 'content') delta.content += content.add(piece);
    else delta.reasoning += reasoning.add(piece);
  }

  function meet(delta: LiveDelta, tag: Tag): void {
    if (mode === 'content' && tag === 'call') mode = 'held';
    else if (mode === 'content' && tag === 'think') mode = ++thoughts === 1 ? 'reasoning' : 'held';
    else if (mode === 'reasoning' && tag === 'think-end') mode = 'content';
    else say(delta, spellings[tag]);
  }

  /** Says the text so far but what may begin a tag; `whole`: nothing follows directly, so all of it. */
  function settle(delta: LiveDelta, whole: boolean): void {
    for (;;) {
      const found = letters
        .map((tag) => ({ tag, at: unsure.indexOf(spellings[tag]) }))
        .filter(({ at }) => at >= 0)
        .sort((a, b) => a.at - b.at)[0];
      if (!found) break;
      say(delta, unsure.slice(0, found.at));
      unsure = unsure.slice(found.at + spellings[found.tag].length);
      meet(delta, found.tag);
    }
    let keep = 0;
    if (!whole) {
      for (const tag of letters) {
        const spelling = spellings[tag];
        for (let n = Math.min(spelling.length - 1, unsure.length); n > keep; n--) {
          if (unsure.endsWith(spelling.slice(0, n))) keep = n;
        }
      }
    }
    say(delta, unsure.slice(0, unsure.length - keep));
    unsure = unsure.slice(unsure.length - keep);
  }

  return {
    push(id) {
      const delta = { content: '', reasoning: '' };
      const piece = decoder.push(id);
      const tag = tagOfId.get(id);
      if (tag === undefined) {
        unsure += piece;
        settle(delta, false);
      } else {
        unsure += piece.slice(0, piece.length - spellings[tag].length);
        settle(delta, true);
        meet(delta, tag);
      }
      return delta;
    },
    end: (whole) => ({ content: content.rest(whole.content), reasoning: reasoning.rest(whole.reasoning ?? '') }),
  };
}
