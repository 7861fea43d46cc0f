// The one extractor of final answers from German math replies; baseline and trained model are read by the same rules.
// Not a grader: it knows no gold answer. Number words ("zwölf") and fractions are not read: they are no answer.
// Invariant: only text after the last `</think>` is looked at, and the rule that fired is always returned.
import { type NumberToken, scanNumbers } from './number-scan.ts';

type AnswerRule = 'boxed' | 'hashes' | 'antwort' | 'sentence' | 'last-number' | 'none';

export interface ExtractedAnswer {
  /** Canonical decimal (`-1234.5`), or null where there is no answer. */
  value: string | null;
  rule: AnswerRule;
  /** [start, end) of the number in the NFC-normalised reply, or null. */
  span: [number, number] | null;
  /** The spelling has two readings (`1,234`); it was read by the fixed rule and should be counted. */
  ambiguous: boolean;
  /** The reply commits to more than one final number; `value` is then the one that the priority picks. */
  contradictory: boolean;
}

interface Candidate {
  token: NumberToken | null;
  contradictory: boolean;
}

const NOTHING: ExtractedAnswer = { value: null, rule: 'none', span: null, ambiguous: false, contradictory: false };
const MARKER =
  /(?<![\p{L}\d])(?:End|Schluss)?(?:antwort|answer)(?!\p{L})[*_` \t]*(?:\([^)\n]{0,40}\))?[*_` \t]*[:=][*_`]*/giu;
const SENTENCE =
  /(?<!\p{L})(?:antwort|answer|lösung|endergebnis)(?!\p{L})[^.!?\n:=]{0,60}?\b(?:lautet|ist|beträgt|is)\b/giu;
const ALTERNATIVE = /(?<!\p{L})(?:oder|or|bzw\.?|beziehungsweise)(?!\p{L})/iu;

/** Where the text that may hold the answer begins, or null if the reasoning was never closed. */
function answerStart(reply: string, thinkingOpenedByPrompt: boolean): number | null {
  const close = reply.lastIndexOf('</think>');
  if (close < 0) return thinkingOpenedByPrompt || reply.includes('<think>') ? null : 0;
  return reply.includes('<think>', close) ? null : close + '</think>'.length;
}

/** The end of the line that holds `at`. */
function lineEnd(text: string, at: number): number {
  const newline = text.indexOf('\n', at);
  return newline < 0 ? text.length : newline;
}

/**
 * The answer inside text[start, end): the first number after the last `=`, else the first number. Two different numbers
 * joined by "oder" contradict each other.
 */
function pick(text: string, tokens: NumberToken[], start: number, end: number): Candidate {
  const inside = tokens.filter((t) => t.span[0] >= start && t.span[1] <= end && t.value !== null);
  const equals = Math.max(text.lastIndexOf('=', end - 1), text.lastIndexOf('≈', end - 1));
  const afterEquals = equals >= start ? inside.findIndex((t) => t.span[0] > equals) : -1;
  const index = Math.max(afterEquals, 0);
  const token = inside[index] ?? null;
  const next = inside[index + 1];
  const contradictory =
    token !== null &&
    next !== undefined &&
    next.value !== token.value &&
    ALTERNATIVE.test(text.slice(token.span[1], next.span[0]));
  return { token, contradictory };
}

function boxes(text: string, tokens: NumberToken[]): Candidate[] {
  return [...text.matchAll(/\\(?:boxed|fbox)\s*\{/g)].map((match) => {
    const start = match.index + match[0].length;
    let depth = 1;
    let end = start;
    while (end < text.length && depth > 0) {
      if (text[end] === '{') depth += 1;
      else if (text[end] === '}') depth -= 1;
      end += 1;
    }
    // An unclosed box was cut off, and \frac or \sqrt hold several numbers that are one value: neither is read.
    const unread = depth > 0 || /\\(?:[dt]?frac|sqrt)/.test(text.slice(start, end));
    return unread ? { token: null, contradictory: false } : pick(text, tokens, start, end - 1);
  });
}

/** `####` before a number (GSM8K's mark). A markdown heading such as `#### Schritt 1` is none. */
function hashes(text: string, tokens: NumberToken[]): Candidate[] {
  return [...text.matchAll(/(?<!#)####(?!#)/g)].flatMap((match) => {
    const start = match.index + 4;
    const end = lineEnd(text, start);
    const rest = text.slice(start, end);
    const heading = /^[^\d\p{L}]*(?:\p{L}|\d+[.)]\s+\p{L})/u.test(rest.replace(/\\\w+|US\$|EUR/g, ''));
    return heading ? [] : [pick(text, tokens, start, end)];
  });
}

function markers(text: string, tokens: NumberToken[]): Candidate[] {
  return [...text.matchAll(MARKER)].map((match) => {
    let start = match.index + match[0].length;
    let end = lineEnd(text, start);
    const blank = () => !/[\p{L}\d]/u.test(text.slice(start, end));
    const onOwnLine = !blank();
    while (blank() && end < text.length) {
      start = end + 1;
      end = lineEnd(text, start);
    }
    // A number may stand on the line below the marker; a line of prose or calculation there is not the answer.
    const readable = onOwnLine || /^[^\p{L}\d=]*\d[^=]*$/u.test(text.slice(start, end));
    return readable ? pick(text, tokens, start, end) : { token: null, contradictory: false };
  });
}

function sentences(text: string, tokens: NumberToken[]): Candidate[] {
  return [...text.matchAll(SENTENCE)].map((match) => {
    const start = match.index + match[0].length;
    const stop = /[.!?](?=\s|$)|\n/.exec(text.slice(start));
    return pick(text, tokens, start, stop ? start + stop.index : text.length);
  });
}

/** The last number that is no list enumerator ("3. Fertig"). */
function lastNumber(text: string, tokens: NumberToken[]): Candidate {
  const numbers = tokens.filter((t) => {
    const line = text.slice(text.lastIndexOf('\n', t.span[0] - 1) + 1, t.span[0]);
    return t.value !== null && !(line.trim() === '' && /^[.)]\s+\p{L}/u.test(text.slice(t.span[1], t.span[1] + 4)));
  });
  const token = numbers.at(-1) ?? null;
  const previous = numbers.at(-2);
  const between = token && previous ? text.slice(previous.span[1], token.span[0]) : '';
  const contradictory =
    previous !== undefined && previous.value !== token?.value && ALTERNATIVE.test(between) && !between.includes('\n');
  return { token, contradictory };
}

function answer(candidate: Candidate, rule: AnswerRule, contradictory: boolean): ExtractedAnswer {
  const token = candidate.token;
  if (!token) return NOTHING;
  return { value: token.value, rule, span: token.span, ambiguous: token.ambiguous, contradictory };
}

const valuesOf = (candidates: Candidate[]) => candidates.flatMap((c) => c.token?.value ?? []);
const differ = (values: string[]) => new Set(values).size > 1;

/**
 * The final answer of a German reply. Priority: last `\boxed{}`, then `####`, then `Antwort:`, then a sentence
 * ("Die Antwort lautet ..."), then the last number; numbers are read by `readGermanNumber`.
 * - Within a marked line the first number counts ("12 Äpfel zu je 3 €" is 12), after the last `=` if there is one.
 * - A mark without a number is no answer: there is no fall-back to a number of the calculation before it.
 * - Several boxes: the last. Several `####` or `Antwort:` with different numbers, marks of two kinds that disagree, and
 *   "41 oder 42" are contradictory.
 * - `thinkingOpenedByPrompt`: the prompt ended with `<think>`, so a reply without `</think>` is unfinished reasoning.
 */
export function extractAnswer(reply: string, options: { thinkingOpenedByPrompt: boolean }): ExtractedAnswer {
  const normal = reply.normalize('NFC');
  const start = answerStart(normal, options.thinkingOpenedByPrompt);
  if (start === null) return NOTHING;
  // Blanks keep every offset of the visible text equal to its offset in the reply.
  const text = ' '.repeat(start) + normal.slice(start);
  const tokens = scanNumbers(text);

  const byRule = { boxed: boxes(text, tokens), hashes: hashes(text, tokens), antwort: markers(text, tokens) };
  const lastBox = byRule.boxed.filter((c) => c.token).slice(-1);
  const finals = [...valuesOf(lastBox), ...valuesOf(byRule.hashes), ...valuesOf(byRule.antwort)];
  for (const rule of ['boxed', 'hashes', 'antwort'] as const) {
    const chosen = byRule[rule].filter((c) => c.token).at(-1);
    if (chosen) return answer(chosen, rule, chosen.contradictory || differ(finals));
  }
  if (byRule.boxed.length + byRule.hashes.length + byRule.antwort.length > 0) return NOTHING;

  const stated = sentences(text, tokens).filter((c) => c.token);
  const lastStated = stated.at(-1);
  if (lastStated) return answer(lastStated, 'sentence', lastStated.contradictory || differ(valuesOf(stated)));
  const last = lastNumber(text, tokens);
  return answer(last, 'last-number', last.contradictory);
}
