// Reads MGSM in its published form (google-research/url-nlp, mgsm_de.tsv): question TAB answer, no header.
// Not a download: the file is given by path (`files-node.ts`).
// Invariant: every item has a question and an exact gold answer.
import { EvaluationError } from '../lib/errors.ts';
import { canonicalDecimal } from './decimal.ts';

export interface MathItem {
  /** `mgsm-de-` and the 1-based line number, three digits. */
  id: string;
  /** NFC-normalised. */
  question: string;
  /** Canonical decimal. */
  gold: string;
}

/**
 * Gold answers are spelled the English way: `2,125` is the integer 2125, `29.00` is 29. Returns null for anything else.
 */
export function readGold(text: string): string | null {
  const plain = /^[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?$/.test(text) ? text.replaceAll(',', '') : text;
  return canonicalDecimal(plain);
}

/** Parses the text of the file. Throws EvaluationError naming `file`, the line and what was found there. */
export function parseMgsm(text: string, file: string): MathItem[] {
  const fail = (code: string, line: number, found: string, wanted: string): never => {
    throw new EvaluationError(
      code,
      `reading ${file}: line ${line}: found ${found}; wanted ${wanted}. ` +
        'Take mgsm_de.tsv unchanged from google-research/url-nlp, or correct the line.',
    );
  };
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  if (lines.at(-1) === '') lines.pop();
  if (lines.length === 0) fail('empty-file', 1, 'an empty file', 'question TAB answer in each line');
  return lines.map((line, index) => {
    const number = index + 1;
    const fields = line.split('\t');
    if (fields.length !== 2) {
      fail('bad-line', number, `${fields.length} tab-separated field(s)`, 'two: question TAB answer');
    }
    const question = fields[0]!.normalize('NFC').trim();
    if (question === '') fail('no-question', number, 'an empty question', 'a question before the tab');
    const answer = fields[1]!.trim();
    const gold = readGold(answer);
    return {
      id: `mgsm-de-${String(number).padStart(3, '0')}`,
      question,
      gold: gold ?? fail('bad-answer', number, `the answer "${answer}"`, 'a number such as 18, 2,125 or 29.00'),
    };
  });
}
