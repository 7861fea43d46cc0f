// Finds the numbers in a reply, with their spans; it does not decide which of them is the answer.
// Not a parser of mathematics: `3*4`, `7:30`, `2x3`, `1/2`, `41-42` are compounds, and no part of one is a number here.
// Invariant: tokens do not overlap, are in text order, and each `span` covers the sign and digits that were read.
import { readGermanNumber } from './decimal.ts';

export interface NumberToken {
  /** Canonical decimal, or null where the spelling is no single number or the token is part of a compound. */
  value: string | null;
  ambiguous: boolean;
  /** [start, end) in UTF-16 units of the scanned text, the sign and a trailing `,-` included. */
  span: [number, number];
}

const GROUP_SPACE = String.raw`(?:[ \u00A0\u202F\u2009'’]|\\[,;: ])`;
const POINT = String.raw`(?:[.,]|\{[.,]\})`;
// A digit after a letter (CO2), after letter-hyphen (COVID-19) or inside a rejected number starts no number.
const NUMBER = new RegExp(
  String.raw`(?<![\p{L}\p{M}\d_]|\p{L}[-–]|\d[.,'’])(?:(?<=^|[\s({$€:=*−-])[.,](?=\d))?` +
    String.raw`(?:\d{1,3}(?:${GROUP_SPACE}\d{3})+(?!\d)(?:${POINT}\d+)?|\d+(?:${POINT}\d+)*)`,
  'gu',
);
const SIGN = /(?:[-−–](?:US)?(?:\\?\$|€)?|(?<!\p{L})minus[^\S\n]+)$/iu;
const JOINER = /^(?:[:x^–−-]|[^\S\n]*(?:[*×·+/÷]|\\(?:cdot|times|div)(?!\p{L}))[^\S\n]*)$/iu;

/** The sign before `start`, if there is one that belongs to the number and is not an operator or a range. */
function signBefore(text: string, start: number): number {
  const before = text.slice(Math.max(0, start - 16), start);
  const sign = SIGN.exec(before);
  if (!sign) return 0;
  const left = before.slice(0, sign.index);
  if (/[\d)\]}%€$]\s*$/.test(left) || /\p{L}$/u.test(left)) return 0;
  return sign[0].length;
}

/** All numbers of `text`, in order. */
export function scanNumbers(text: string): NumberToken[] {
  const tokens: NumberToken[] = [];
  const joined = new Set<number>();
  for (const match of text.matchAll(NUMBER)) {
    const start = match.index;
    let end = start + match[0].length;
    const signLength = signBefore(text, start);
    const glued = /^(?:[eE][+-]?|[xX])\d/.test(text.slice(end, end + 3)); // 1e3, 2x3
    const read = glued ? null : readGermanNumber(match[0], signLength > 0);
    // "1234,-" and "1234,--" are the German spelling of a round price.
    const roundPrice = /^[.,][-–—]{1,2}(?![\d\p{L}])/u.exec(text.slice(end, end + 4));
    if (roundPrice) end += roundPrice[0].length;
    const previous = tokens.at(-1);
    if (previous && JOINER.test(text.slice(previous.span[1], start))) joined.add(tokens.length - 1).add(tokens.length);
    tokens.push({ value: read?.value ?? null, ambiguous: read?.ambiguous ?? false, span: [start - signLength, end] });
  }
  for (const index of joined) tokens[index] = { ...tokens[index]!, value: null, ambiguous: false };
  return tokens;
}
