// JSON values on their way into a chat template, so that `tojson` prints what Python's json.dumps(ensure_ascii=False)
// prints: keys in the order of the text (integer-like ones too) and numbers as Python spells them.
// Not a general JSON reader. Invariant: restoreNumbers(render(prepareValue(v))) has no marker left.
import { fileFault } from './file-fault.ts';

/** A number that a JSON text spells in a way that JavaScript would not print. */
const SPELLING = Symbol('spelling');

/** A float as Python's repr: shortest digits, `1.0`, `1e-07`, `1e+16`. */
export function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity';
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  if (value === 0) return `${sign}0.0`;
  const [mantissa, exponentText] = Math.abs(value).toExponential().split('e') as [string, string];
  const exponent = Number(exponentText);
  const digits = mantissa.replace('.', '');
  // repr uses the exponent form below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) {
    return `${sign}${mantissa}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
  return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
}

/** An object whose keys stand in the order given; a plain object would move integer-like keys to the front. */
function orderedObject(entries: [string, unknown][]): object {
  const values = new Map(entries);
  return new Proxy(Object.create(null) as object, {
    ownKeys: () => [...values.keys()],
    has: (_, key) => values.has(key as string),
    get: (_, key) => values.get(key as string),
    getOwnPropertyDescriptor: (_, key) =>
      values.has(key as string)
        ? { value: values.get(key as string), enumerable: true, configurable: true, writable: true }
        : undefined,
  });
}

/**
 * A JavaScript value, or one of parseOrderedJson, as the template engine should get it. Strings and keys go through
 * `mapText`; a number that the engine would spell unlike Python stands between two `numberMark`s, for restoreNumbers.
 */
export function prepareValue(value: unknown, mapText: (text: string) => string, numberMark: string): unknown {
  if (typeof value === 'string') return mapText(value);
  if (typeof value === 'number') {
    const spelling = Number.isInteger(value) && Math.abs(value) < 1e21 ? String(value) : pythonFloat(value);
    return JSON.stringify(value) === spelling ? value : numberMark + spelling + numberMark;
  }
  if (Array.isArray(value)) return value.map((item) => prepareValue(item, mapText, numberMark));
  if (value === null || typeof value !== 'object') return value;
  const spelling = (value as { [SPELLING]?: string })[SPELLING];
  if (spelling !== undefined) return numberMark + spelling + numberMark;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return orderedObject(entries.map(([key, item]) => [mapText(key), prepareValue(item, mapText, numberMark)]));
}

/** The rendered text with the numbers that stand between marks as plain numbers. */
export function restoreNumbers(text: string, numberMark: string): string {
  return text.replace(new RegExp(`"?${numberMark}([^${numberMark}]*)${numberMark}"?`, 'gu'), '$1');
}

/**
 * A JSON text as a value whose key order and number spelling survive `prepareValue`. `doing` starts the error message.
 * The last of two equal keys wins, as in Python.
 */
export function parseOrderedJson(text: string, doing: string): unknown {
  try {
    JSON.parse(text);
  } catch (cause) {
    throw fileFault('bad-json', {
      doing,
      found: cause instanceof Error ? cause.message : String(cause),
      wanted: 'one JSON value',
      remedy: 'Correct the JSON text.',
      cause,
    });
  }
  let at = 0;
  const skip = () => {
    while (' \t\n\r'.includes(text[at] ?? 'x')) at++;
  };
  // The text is known to be valid, so each branch only has to find where its value ends.
  function read(): unknown {
    skip();
    const token = /"(?:[^"\\]|\\.)*"|[^\s,:\]}[{]+|[[{]/suy;
    token.lastIndex = at;
    const raw = token.exec(text)![0];
    at += raw.length;
    if (raw === '{') return readObject();
    if (raw === '[') return readList();
    if (/^-?\d/.test(raw)) return /[.eE]/.test(raw) ? spelt(pythonFloat(Number(raw))) : spelt(raw.replace(/^-0$/, '0'));
    return JSON.parse(raw);
  }
  function readList(): unknown[] {
    const list: unknown[] = [];
    for (skip(); text[at] !== ']'; skip()) {
      if (text[at] === ',') at++;
      list.push(read());
    }
    at++;
    return list;
  }
  function readObject(): object {
    const entries = new Map<string, unknown>();
    for (skip(); text[at] !== '}'; skip()) {
      if (text[at] === ',') at++;
      const key = read() as string;
      skip();
      at++;
      entries.set(key, read());
    }
    at++;
    return orderedObject([...entries]);
  }
  return read();
}

function spelt(spelling: string): unknown {
  const value = Number(spelling);
  return JSON.stringify(value) === spelling ? value : { [SPELLING]: spelling };
}
