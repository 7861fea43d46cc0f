// Reads one JSON value (RFC 8259) out of a longer text and says where it ends: the audit's own reader.
// Not a parser of values: it keeps places, not contents. The text has one character a byte (Latin-1 view of UTF-8), so
// places are byte offsets. Invariant: iterative, so no nesting that a token budget allows can exhaust the stack.

/** [from, to) in the text. */
export type Place = readonly [from: number, to: number];

export interface JsonValue {
  /** Where the value ends. */
  end: number;
  /** Places of an object's member values by key, or null if the value is no object. */
  members: ReadonlyMap<string, Place> | null;
  /** Whether some object in it, at any depth, has a key twice. */
  repeatedKey: boolean;
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
const WORDS = ['true', 'false', 'null'];

/** The first offset from `at` on that is no JSON white space. */
export function skipSpace(text: string, at: number): number {
  let i = at;
  while (i < text.length && ' \t\n\r'.includes(text[i]!)) i++;
  return i;
}

/** Where the string that opens at `at` ends, or -1. */
function stringEnd(text: string, at: number): number {
  for (let i = at + 1; i < text.length; i++) {
    const character = text[i]!;
    if (character === '"') return i + 1;
    if (character < ' ') return -1;
    if (character !== '\\') continue;
    i++;
    if (text[i] === 'u') {
      if (!/^[0-9a-fA-F]{4}$/.test(text.slice(i + 1, i + 5))) return -1;
      i += 4;
    } else if (!'"\\/bfnrt'.includes(text[i] ?? '?')) return -1;
  }
  return -1;
}

/** Where the string, number or word at `at` ends, or -1. */
function scalarEnd(text: string, at: number): number {
  if (text[at] === '"') return stringEnd(text, at);
  const word = WORDS.find((candidate) => text.startsWith(candidate, at));
  if (word) return at + word.length;
  NUMBER.lastIndex = at;
  return NUMBER.test(text) ? NUMBER.lastIndex : -1;
}

/** A string of the Latin-1 view as the text that it stands for. */
function stringValue(text: string, [from, to]: Place): string {
  const bytes = Uint8Array.from(text.slice(from, to), (character) => character.charCodeAt(0));
  return JSON.parse(new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)) as string;
}

/** The JSON value that begins at `from`, white space skipped, or null. What follows it is not read. */
export function readJsonValue(text: string, from: number): JsonValue | null {
  const open: { keys: Set<string> | null }[] = [];
  const members = new Map<string, Place>();
  let isObject = false;
  let repeatedKey = false;
  let memberKey = '';
  let memberFrom = 0;
  let at = skipSpace(text, from);

  /** Reads `"key" :` and leaves `at` on the value. */
  const readKey = (keys: Set<string>): boolean => {
    if (text[at] !== '"') return false;
    const end = stringEnd(text, at);
    if (end < 0) return false;
    const key = stringValue(text, [at, end]);
    repeatedKey ||= keys.has(key);
    keys.add(key);
    at = skipSpace(text, end);
    if (text[at] !== ':') return false;
    at = skipSpace(text, at + 1);
    if (open.length === 1) [memberKey, memberFrom] = [key, at];
    return true;
  };

  for (;;) {
    const opener = text[at];
    let complete = true;
    if (opener === '{' || opener === '[') {
      const keys = opener === '{' ? new Set<string>() : null;
      if (open.length === 0) isObject = keys !== null;
      open.push({ keys });
      at = skipSpace(text, at + 1);
      if (text[at] === (keys ? '}' : ']')) {
        open.pop();
        at++;
      } else {
        if (keys && !readKey(keys)) return null;
        complete = false;
      }
    } else {
      const end = scalarEnd(text, at);
      if (end < 0) return null;
      at = end;
    }
    while (complete) {
      const inside = open.at(-1);
      if (!inside) return { end: at, members: isObject ? members : null, repeatedKey };
      if (open.length === 1 && inside.keys) members.set(memberKey, [memberFrom, at]);
      at = skipSpace(text, at);
      if (text[at] === ',') {
        at = skipSpace(text, at + 1);
        if (inside.keys && !readKey(inside.keys)) return null;
        complete = false;
      } else if (text[at] === (inside.keys ? '}' : ']')) {
        open.pop();
        at++;
      } else return null;
    }
  }
}
