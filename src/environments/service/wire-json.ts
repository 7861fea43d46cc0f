// JSON as Python reads and writes it: integers apart from floats, objects in order, NaN as a literal, lone surrogates.
// Not for our own files (lib/canonical-json.ts). Invariant: emit(parse(text)) keeps every number's value and kind, and
// parse errors carry Python's text and position, because services show them.

/** bigint is a Python int, number a float, Map a dict. */
export type WireValue = null | boolean | bigint | number | string | WireValue[] | WireMap;
export type WireMap = Map<string, WireValue>;

/** A text that is not JSON. `message` and `position` are those of Python's json module. */
export class WireJsonError extends Error {
  readonly position: number;
  readonly line: number;
  readonly column: number;
  constructor(message: string, text: string, position: number) {
    super(message);
    this.name = 'WireJsonError';
    this.position = position;
    const before = text.slice(0, position);
    this.line = before.split('\n').length;
    this.column = position - before.lastIndexOf('\n');
  }
  /** `Expecting value: line 1 column 1 (char 0)`. */
  get pythonText(): string {
    return `${this.message}: line ${this.line} column ${this.column} (char ${this.position})`;
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y;
/** A stretch of a string without escapes, quotes and control characters. */
const PLAIN = /[\u0020\u0021\u0023-\u005b\u005d-\uffff]*/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};
const LITERALS: readonly (readonly [string, WireValue])[] = [
  ['null', null],
  ['true', true],
  ['false', false],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
];
/** Deeper nesting is refused, as Python's recursion limit does. */
const MAX_DEPTH = 900;

/** Parses JSON as `json.loads` does. Throws WireJsonError. */
export function parseWireJson(text: string): WireValue {
  let at = 0;
  const fail = (message: string, position = at): never => {
    throw new WireJsonError(message, text, position);
  };
  const skip = (): void => {
    for (;;) {
      const code = text.charCodeAt(at);
      // Space, tab, line feed, carriage return; NaN at the end.
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      at += 1;
    }
  };

  function string(): string {
    const start = at;
    at += 1;
    let out = '';
    for (;;) {
      PLAIN.lastIndex = at;
      PLAIN.test(text);
      const end = PLAIN.lastIndex;
      out = out === '' ? text.slice(at, end) : out + text.slice(at, end);
      at = end;
      if (at >= text.length) fail('Unterminated string starting at', start);
      const char = text[at]!;
      if (char === '"') {
        at += 1;
        return out;
      }
      if (char !== '\\') fail('Invalid control character at');
      const letter = text[at + 1];
      if (letter === undefined) fail('Unterminated string starting at', start);
      if (letter === 'u') {
        const digits = text.slice(at + 2, at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) fail('Invalid \\uXXXX escape', at + 1);
        out += String.fromCharCode(Number.parseInt(digits, 16));
        at += 6;
        continue;
      }
      const plain = ESCAPES[letter!];
      if (plain === undefined) fail('Invalid \\escape', at);
      out += plain;
      at += 2;
    }
  }

  function value(depth: number): WireValue {
    if (depth > MAX_DEPTH) fail('maximum recursion depth exceeded');
    const char = text[at];
    if (char === '"') return string();
    if (char === '{') return object(depth);
    if (char === '[') return array(depth);
    if (char === '-' || (char !== undefined && char >= '0' && char <= '9')) {
      NUMBER.lastIndex = at;
      const match = NUMBER.exec(text);
      if (match) {
        at = NUMBER.lastIndex;
        return match[1] === undefined && match[2] === undefined ? BigInt(match[0]) : Number(match[0]);
      }
    }
    for (const [literal, meaning] of LITERALS) {
      if (text.startsWith(literal, at)) {
        at += literal.length;
        return meaning;
      }
    }
    return fail('Expecting value');
  }

  function object(depth: number): WireMap {
    const map: WireMap = new Map();
    at += 1;
    skip();
    if (text[at] === '}') {
      at += 1;
      return map;
    }
    for (;;) {
      if (text[at] !== '"') fail('Expecting property name enclosed in double quotes');
      const key = string();
      skip();
      if (text[at] !== ':') fail("Expecting ':' delimiter");
      at += 1;
      skip();
      map.set(key, value(depth + 1));
      skip();
      if (text[at] === '}') {
        at += 1;
        return map;
      }
      if (text[at] !== ',') fail("Expecting ',' delimiter");
      at += 1;
      skip();
    }
  }

  function array(depth: number): WireValue[] {
    const list: WireValue[] = [];
    at += 1;
    skip();
    if (text[at] === ']') {
      at += 1;
      return list;
    }
    for (;;) {
      list.push(value(depth + 1));
      skip();
      if (text[at] === ']') {
        at += 1;
        return list;
      }
      if (text[at] !== ',') fail("Expecting ',' delimiter");
      at += 1;
      skip();
    }
  }

  if (text.startsWith('\ufeff')) fail('Unexpected UTF-8 BOM (decode using utf-8-sig)', 0);
  skip();
  const result = value(0);
  skip();
  if (at < text.length) fail('Extra data');
  return result;
}

/** What cannot be written: a lone surrogate, or NaN where it is not allowed. `reason` is Python's text. */
export class WireEmitError extends Error {
  readonly reason: 'surrogate' | 'nan' | 'type';
  constructor(reason: 'surrogate' | 'nan' | 'type', message: string) {
    super(message);
    this.name = 'WireEmitError';
    this.reason = reason;
  }
}

export interface EmitOptions {
  /** `null`: as pydantic writes them; `refuse`: as starlette's JSONResponse does. */
  nan?: 'null' | 'refuse';
  /** `json.dumps` defaults: spaces after separators, ASCII escapes. Compact UTF-8 otherwise. */
  dumps?: boolean;
}

/** A float as Python and pydantic print it: `1.0`, `1e+21`, `-0.0`. */
export function floatText(value: number): string {
  if (Object.is(value, -0)) return '-0.0';
  const text = String(value);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

function stringText(value: string, ascii: boolean): string {
  // Most texts are well formed, which the engine tells at once.
  if (!ascii && (value as string & { isWellFormed(): boolean }).isWellFormed()) return JSON.stringify(value);
  const lone = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.exec(value);
  if (lone && !ascii) {
    const position = Array.from(value.slice(0, lone.index)).length;
    const code = lone[0].charCodeAt(0).toString(16);
    const detail = `'utf-8' codec can't encode character '\\u${code}' in position ${position}: surrogates not allowed`;
    throw new WireEmitError('surrogate', `Error serializing to JSON: UnicodeEncodeError: ${detail}`);
  }
  const text = JSON.stringify(value);
  if (!ascii) return text;
  return text.replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Writes JSON, compact and UTF-8 by default. Throws WireEmitError. */
export function emitWireJson(value: WireValue, options: EmitOptions = {}): string {
  const ascii = options.dumps === true;
  const [comma, colon] = ascii ? [', ', ': '] : [',', ':'];
  const emit = (item: WireValue): string => {
    if (item === null) return 'null';
    if (typeof item === 'string') return stringText(item, ascii);
    if (typeof item === 'boolean' || typeof item === 'bigint') return String(item);
    if (typeof item === 'number') {
      if (Number.isFinite(item)) return floatText(item);
      if (options.nan !== 'refuse') return 'null';
      throw new WireEmitError('nan', 'Out of range float values are not JSON compliant');
    }
    // Texts that grow: lists of parts would be made anew for every member.
    let out = '';
    if (Array.isArray(item)) {
      for (const member of item) out += out === '' ? emit(member) : comma + emit(member);
      return `[${out}]`;
    }
    if (item instanceof Map) {
      for (const [key, member] of item) {
        const own = stringText(key, ascii) + colon + emit(member);
        out += out === '' ? own : comma + own;
      }
      return `{${out}}`;
    }
    throw new WireEmitError('type', "Unable to serialize unknown type: <class 'object'>");
  };
  return emit(value);
}

/** Plain data as a WireValue: safe integers become ints, other numbers floats; undefined members are left out. */
export function toWire(value: unknown): WireValue {
  if (value === null || typeof value === 'boolean' || typeof value === 'string' || typeof value === 'bigint')
    return value;
  if (typeof value === 'number') return Number.isSafeInteger(value) && !Object.is(value, -0) ? BigInt(value) : value;
  if (Array.isArray(value)) return value.map(toWire);
  if (value instanceof Map) return new Map([...value].map(([key, member]) => [String(key), toWire(member)]));
  if (typeof value === 'object') {
    const members = Object.entries(value).filter(([, member]) => member !== undefined);
    return new Map(members.map(([key, member]) => [key, toWire(member)]));
  }
  return value as WireValue;
}

/** A WireValue as plain JavaScript data; ints beyond 2^53 lose digits. */
export function fromWire(value: WireValue): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(fromWire);
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, member]) => [key, fromWire(member)]));
  return value;
}
