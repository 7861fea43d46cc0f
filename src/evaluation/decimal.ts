// Numbers as exact decimals in text: how a number in a German reply is read, and when two numbers are equal.
// Not floating point: 29.00 equals 29 because both have the canonical form "29", never because of a rounding.
// Invariant: a canonical decimal is unique: equal numbers have equal strings.

/** A number that was read: its canonical decimal, and whether the spelling allows two readings. */
export interface ReadNumber {
  value: string;
  ambiguous: boolean;
}

/** Canonical form from digits: no leading or trailing zeros, no `+`, no negative zero, `.` before a fraction. */
function canonical(negative: boolean, whole: string, fraction: string): string {
  const integer = whole.replace(/^0+(?=\d)/, '') || '0';
  const rest = fraction.replace(/0+$/, '');
  const magnitude = rest === '' ? integer : `${integer}.${rest}`;
  return negative && magnitude !== '0' ? `-${magnitude}` : magnitude;
}

/**
 * Reads a plain decimal (`-?digits[.digits]`, no grouping) as it stands in data files.
 * Returns its canonical form, or null if `text` is anything else.
 */
export function canonicalDecimal(text: string): string | null {
  const match = /^([+-]?)(\d+)(?:\.(\d+))?$/.exec(text);
  return match ? canonical(match[1] === '-', match[2]!, match[3] ?? '') : null;
}

/**
 * Reads an unsigned number as a German text spells it. The locale rule:
 * - groups of three after a point, a space (also U+00A0, U+202F, U+2009, LaTeX `\,`) or an apostrophe are thousands:
 *   `1.234`, `70 000`, `1'234`; a first group that starts with 0 is no thousands group, so `0.750` is a fraction;
 * - a comma is the decimal sign: `18,00`, `0,75`, `1.234,50`; a point with other than three digits is one too: `29.00`;
 * - a single comma before exactly three digits (`1,234`, also `9{,}500`) can be a German fraction or English thousands.
 *   The fixed rule reads thousands, and `ambiguous` is set so that it can be counted;
 * - English spellings that have one reading are taken: `1,234,567`, `1,234.50`.
 * Returns null for what is no single number (a date such as `12.03.2024`, a list such as `1,2,3`).
 */
export function readGermanNumber(raw: string, negative: boolean): ReadNumber | null {
  const text = raw
    .replace(/\{([.,])\}/g, '$1')
    .replace(/[ \u00A0\u202F\u2009'’]|\\[,;: ]/g, '_')
    .replace(/^([.,])/, '0$1');
  const read = (whole: string, fraction = '', ambiguous = false): ReadNumber => ({
    value: canonical(negative, whole.replace(/[_.,]/g, ''), fraction),
    ambiguous,
  });
  if (/^\d+$/.test(text)) return read(text);
  if (/^[1-9]\d{0,2}(?:\.\d{3})+$/.test(text)) return read(text);
  if (/^[1-9]\d{0,2},\d{3}$/.test(text)) return read(text, '', true);
  if (/^[1-9]\d{0,2}(?:,\d{3}){2,}$/.test(text)) return read(text);
  const parts =
    /^([1-9]\d{0,2}(?:_\d{3})+)(?:[.,](\d+))?$/.exec(text) ??
    /^([1-9]\d{0,2}(?:\.\d{3})+),(\d+)$/.exec(text) ??
    /^([1-9]\d{0,2}(?:,\d{3})+)\.(\d+)$/.exec(text) ??
    /^(\d+)[.,](\d+)$/.exec(text);
  return parts ? read(parts[1]!, parts[2] ?? '') : null;
}
