// The audit's own reader of a sampled turn: its tool calls with their places, and the text that a grader may see.
// Not the rollout's parser: a second implementation of the same rules, over bytes, sharing no code with it.
// Invariant: reads ids only. Tags are added tokens where the tokenizer has the pair, else their letters.
import type { Text } from '../model/text.ts';
import type { CallStatus } from '../rollout/episode.ts';
import { readJsonValue, skipSpace } from './json-value.ts';

export interface ReadCall {
  /** [start, end) in the ids that were read, tags included. */
  span: [number, number];
  status: CallStatus;
  name: string | null;
  argumentsJson: string | null;
}

export interface TurnReading {
  calls: ReadCall[];
  /** Text after the last </think> without tool calls, trimmed; '' if reasoning was never closed. */
  finalText: string;
}

type MarkKind = 'call' | '/call' | 'think' | '/think';

/** A tag: [from, to) in bytes, [token, tokenEnd) in ids. */
interface Mark {
  kind: MarkKind;
  from: number;
  to: number;
  token: number;
  tokenEnd: number;
}

const TAGS: readonly (readonly [MarkKind, string])[] = [
  ['call', '<tool_call>'],
  ['/call', '</tool_call>'],
  ['think', '<think>'],
  ['/think', '</think>'],
];

interface Scan {
  /** One character a byte. */
  raw: string;
  bytes: Uint8Array;
  /** [ids + 1]: token i covers bytes [starts[i], starts[i + 1]). */
  starts: number[];
  marks: Mark[];
}

function scan(ids: readonly number[], text: Text): Scan {
  const pieces = ids.map((id) => text.bytesOf(id));
  const starts = [0];
  for (const piece of pieces) starts.push(starts.at(-1)! + piece.length);
  const bytes = new Uint8Array(starts.at(-1)!);
  for (const [i, piece] of pieces.entries()) bytes.set(piece, starts[i]!);
  let raw = '';
  for (const byte of bytes) raw += String.fromCharCode(byte);
  const marks: Mark[] = [];
  for (const [position, [kind, letters]] of TAGS.entries()) {
    const pair = TAGS.slice(position & ~1, (position & ~1) + 2).map(([, tag]) => text.addedTokenId(tag));
    if (pair.includes(null)) {
      for (let from = raw.indexOf(letters); from >= 0; from = raw.indexOf(letters, from + 1)) {
        const to = from + letters.length;
        // The tokens that hold the first and the last letter.
        const token = starts.findIndex((start) => start > from) - 1;
        marks.push({ kind, from, to, token, tokenEnd: starts.findIndex((start) => start >= to) });
      }
    } else {
      for (const [token, id] of ids.entries()) {
        if (id !== pair[position & 1]) continue;
        marks.push({ kind, from: starts[token]!, to: starts[token + 1]!, token, tokenEnd: token + 1 });
      }
    }
  }
  return { raw, bytes, starts, marks: marks.sort((a, b) => a.from - b.from) };
}

const lenient = (bytes: Uint8Array) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);

function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** Whether the ids end in a turn whose <think> is still open: the ids since the last id of `turnEnds` are read. */
export function endsInThinking(ids: readonly number[], text: Text, turnEnds: readonly number[]): boolean {
  const from = ids.findLastIndex((id) => turnEnds.includes(id)) + 1;
  const { marks } = scan(ids.slice(from), text);
  return marks.findLast(({ kind }) => kind === 'think' || kind === '/think')?.kind === 'think';
}

/**
 * Reads a turn. `ids`: its sampled ids without stop or end id. `tools`: names that may be called. `thinking`: whether
 * the turn begins inside reasoning. The rules: a call inside <think> is none, and a <think> that is never closed
 * means no call at all; a block runs to the tag that follows one complete JSON value (tags in its strings are
 * text), else to the first tag; complete JSON up to the end of the turn counts as closed; nothing is repaired.
 */
export function readTurn(ids: readonly number[], text: Text, tools: readonly string[], thinking: boolean): TurnReading {
  const scanned = scan(ids, text);
  const { bytes, marks } = scanned;
  const calls: ReadCall[] = [];
  let visible = '';
  let at = 0;
  let next = 0;
  let inside = thinking;
  for (;;) {
    if (inside) {
      const close = marks.findIndex(({ kind }, i) => i >= next && kind === '/think');
      if (close < 0) return { calls: [], finalText: '' };
      inside = false;
      visible = '';
      at = marks[close]!.to;
      next = close + 1;
      continue;
    }
    const mark = marks[next];
    visible += lenient(bytes.subarray(at, mark ? mark.from : bytes.length));
    if (!mark) return { calls, finalText: visible.trim() };
    at = mark.to;
    next++;
    if (mark.kind === 'think') inside = true;
    else if (mark.kind === '/think') visible = '';
    else if (mark.kind === '/call') visible += '</tool_call>';
    else {
      const { call, end } = readBlock(scanned, next - 1, tools);
      calls.push(call);
      at = end;
      while (marks[next] && marks[next]!.from < end) next++;
    }
  }
}

/** The call whose opening tag is `marks[open]`, and the byte offset where its block ends. */
function readBlock(scanned: Scan, open: number, tools: readonly string[]): { call: ReadCall; end: number } {
  const { raw, bytes, starts, marks } = scanned;
  const opener = marks[open]!;
  const closers = marks.filter(({ kind, from }) => kind !== '/think' && from >= opener.to);
  const value = readJsonValue(raw, opener.to);
  const after = value ? skipSpace(raw, value.end) : -1;
  const atTheEnd = after === raw.length;
  const closer = closers.find(({ from }) => from === after) ?? (atTheEnd ? undefined : closers[0]);
  const closed = closer ? closer.kind === '/call' : atTheEnd;
  const lastToken = closer ? (closed ? closer.tokenEnd : closer.token) : starts.length - 1;
  const end = closer ? (closed ? closer.to : closer.from) : raw.length;
  const call: ReadCall = { span: [opener.token, lastToken], status: 'unclosed', name: null, argumentsJson: null };
  if (!closed) return { call, end };

  call.status = 'invalid_json';
  const sound = isUtf8(bytes.subarray(starts[opener.token]!, starts[lastToken]!));
  // JSON that the closing tag does not follow at once has something trailing.
  const whole = value !== null && after === (closer ? closer.from : raw.length);
  if (!sound || !whole || !value.members || value.repeatedKey) return { call, end };
  const member = (key: string) => {
    const place = value.members!.get(key);
    return place ? lenient(bytes.subarray(place[0], place[1])) : null;
  };
  const name: unknown = JSON.parse(member('name') ?? 'null');
  if (typeof name !== 'string') return { call, end };
  const argumentsJson = member('arguments');
  Object.assign(call, { name, argumentsJson });
  if (argumentsJson !== null && argumentsJson !== 'null' && argumentsJson[0] !== '{') return { call, end };
  if (!tools.includes(name)) call.status = 'unknown_tool';
  else if (argumentsJson === null || argumentsJson === 'null') {
    call.status = 'missing_arguments';
    call.argumentsJson = null;
  } else call.status = 'ok';
  return { call, end };
}
