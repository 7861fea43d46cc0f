// Reads an assistant's turn from its sampled ids: reasoning, content, and each hermes-style <tool_call> block with a
// status and its token span. Not a repair shop: what the model did not write is not filled in, and only `ok` may run.
// Invariant: every id is in at most one block, and no block lies inside reasoning.
import type { Text } from '../model/text.ts';
import { type CallBody, isJson, readCall } from './call-json.ts';
import type { CallStatus } from './episode.ts';
import { type Tag, type TaggedTurn, tagTurn } from './turn-tags.ts';

export interface ParsedCall {
  /** [start, end) in the turn's ids, tags included. */
  span: [number, number];
  status: CallStatus;
  name: string | null;
  /** The slice of sampled text that holds the arguments, or null. An object exactly if the status is `ok`. */
  argumentsJson: string | null;
}

export interface ParsedTurn {
  /** In order. Good ones count though others are bad. */
  calls: ParsedCall[];
  /** Text outside reasoning and blocks, trimmed. */
  content: string;
  /** Trimmed text of the reasoning, or null if there was none. */
  reasoning: string | null;
  /** Content after the last </think>, trimmed; '' if reasoning was never closed. What a grader may see. */
  finalText: string;
}

export interface TurnInput {
  /** The sampled ids of one turn, with or without its stop token. */
  ids: readonly number[];
  text: Text;
  knownTools: readonly string[];
  /** Whether the prompt or suffix before the turn ends inside an open <think> (see endsInReasoning). */
  thinkingOpenedByPrompt: boolean;
}

/**
 * Parses a turn.
 *
 * - Reasoning runs from <think> (or the start, if the prompt opened it) to </think>; a <tool_call> in it is no call.
 *   If it is never closed, the turn has no call at all. A </think> that closes nothing is plain content.
 * - A block runs from <tool_call> to </tool_call>. If one JSON value starts after <tool_call>, tags inside its strings
 *   are text; otherwise the first tag ends the block. A block that meets another <tool_call> or a <think> first is
 *   `unclosed`, and so is one that meets the end of the turn, unless its JSON is complete: then it is read as closed.
 * - Bytes that are not UTF-8 inside a block make it invalid_json.
 */
export function parseTurn({ ids, text, knownTools, thinkingOpenedByPrompt }: TurnInput): ParsedTurn {
  const turn = tagTurn(withoutStop(ids, text), text);
  const calls: ParsedCall[] = [];
  const reasoning: string[] = [];
  let content = '';
  let afterReasoning = 0;
  let thinking = thinkingOpenedByPrompt;
  let at = 0;
  let next = 0;
  while (next < turn.tags.length) {
    const tag = turn.tags[next]!;
    if (thinking) {
      next++;
      if (tag.kind !== 'think-end') continue;
      reasoning.push(turn.text.slice(at, tag.start));
      at = tag.end;
      thinking = false;
      afterReasoning = content.length;
      continue;
    }
    if (tag.kind === 'call') {
      content += turn.text.slice(at, tag.start);
      const block = readBlock(turn, next, knownTools);
      calls.push(block.call);
      at = block.endOffset;
      next = block.nextTag;
      continue;
    }
    next++;
    if (tag.kind === 'think') {
      content += turn.text.slice(at, tag.start);
      at = tag.end;
      thinking = true;
    } else if (tag.kind === 'think-end') {
      content += turn.text.slice(at, tag.end);
      at = tag.end;
      afterReasoning = content.length;
    }
  }
  const rest = turn.text.slice(at);
  if (thinking) reasoning.push(rest);
  else content += rest;
  return {
    calls: thinking ? [] : calls,
    content: content.trim(),
    reasoning: reasoning.length === 0 ? null : reasoning.join('\n').trim(),
    finalText: thinking ? '' : content.slice(afterReasoning).trim(),
  };
}

/** Whether ids (a prompt, or all up to a turn) end inside a <think> that their last turn opened and did not close. */
export function endsInReasoning(ids: readonly number[], text: Text): boolean {
  let start = ids.length;
  while (start > 0 && !text.stopIds.includes(ids[start - 1]!)) start--;
  const last = tagTurn(ids.slice(start), text).tags.findLast(({ kind }) => kind === 'think' || kind === 'think-end');
  return last?.kind === 'think';
}

function withoutStop(ids: readonly number[], text: Text): readonly number[] {
  const last = ids.at(-1);
  const stops = last !== undefined && (text.stopIds.includes(last) || text.endIds.includes(last));
  return stops ? ids.slice(0, -1) : ids;
}

/** The block that the tag `open` begins, where its text ends, and the first tag after it. */
function readBlock(turn: TaggedTurn, open: number, knownTools: readonly string[]) {
  const from = turn.tags[open]!;
  const closer = blockEnd(turn, open);
  const body = turn.text.slice(from.end, closer?.start ?? turn.text.length);
  const closed = closer === null ? isJson(body) : closer.kind === 'call-end';
  const endOffset = closer === null ? turn.text.length : closed ? closer.end : closer.start;
  const endToken = closer === null ? turn.tokenAt(turn.text.length) : closed ? closer.endToken : closer.firstToken;
  const read: CallBody | { status: 'unclosed'; name: null; argumentsJson: null } = closed
    ? readCall(turn.damaged(from.firstToken, endToken) ? '' : body, knownTools)
    : { status: 'unclosed', name: null, argumentsJson: null };
  const nextTag = turn.tags.findIndex((tag) => tag.start >= endOffset);
  const call: ParsedCall = { span: [from.firstToken, endToken], ...read };
  return { call, endOffset, nextTag: nextTag < 0 ? turn.tags.length : nextTag };
}

/** The tag that ends the block: the first before which the body is one JSON value, else the first at all, else null. */
function blockEnd(turn: TaggedTurn, open: number): Tag | null {
  const { end } = turn.tags[open]!;
  const bodyIsJson = (upTo: number) => isJson(turn.text.slice(end, upTo));
  // A </think> closes nothing here; outside a string it only spoils the JSON.
  const candidates = turn.tags.slice(open + 1).filter((tag) => tag.kind !== 'think-end' && tag.start >= end);
  const whole = candidates.find((tag) => bodyIsJson(tag.start));
  if (whole) return whole;
  return bodyIsJson(turn.text.length) ? null : (candidates[0] ?? null);
}
