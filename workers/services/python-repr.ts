// Python's repr of JSON values, as error texts of the upstream servers show them.
// Not a serialiser. Invariant: a pure function of the value.
import { floatText, type WireValue } from '../../src/environments/service/wire-json.ts';

function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = '';
  for (const char of text) {
    const code = char.codePointAt(0)!;
    if (char === '\\') out += '\\\\';
    else if (char === mark) out += `\\${char}`;
    else if (char === '\n') out += '\\n';
    else if (char === '\r') out += '\\r';
    else if (char === '\t') out += '\\t';
    else if (code < 0x20 || code === 0x7f) out += `\\x${code.toString(16).padStart(2, '0')}`;
    else if (code >= 0xd800 && code <= 0xdfff) out += `\\u${code.toString(16)}`;
    else out += char;
  }
  return `${mark}${out}${mark}`;
}

/** `{'a': None, 'b': [1, 2.0, True]}`. */
export function pythonRepr(value: WireValue): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'string') return quote(value);
  if (typeof value === 'number') {
    if (Number.isNaN(value)) return 'nan';
    if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
    return floatText(value);
  }
  if (Array.isArray(value)) return `[${value.map(pythonRepr).join(', ')}]`;
  return `{${[...value].map(([key, member]) => `${quote(key)}: ${pythonRepr(member)}`).join(', ')}}`;
}

/** `str(value)`: a string as it is. */
export const pythonStr = (value: WireValue): string => (typeof value === 'string' ? value : pythonRepr(value));

/** `type(value).__name__`. */
export function pythonType(value: WireValue): string {
  if (value === null) return 'NoneType';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'bigint') return 'int';
  if (typeof value === 'number') return 'float';
  if (typeof value === 'string') return 'str';
  return Array.isArray(value) ? 'list' : 'dict';
}
