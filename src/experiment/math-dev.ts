// Reads the DEV math file and the SFT file beside it (JSON lines).
// Not MGSM (evaluation/mgsm.ts). Invariant: every DEV item has a question and an exact gold answer, each id once; a
// line
// of the SFT file may be any JSON value.
import { z } from 'zod';
import type { MathItem } from '../evaluate.ts';
import { readGold } from '../evaluation/mgsm.ts';
import { PlanError } from '../lib/errors.ts';
import { issuesText } from '../lib/zod-issues.ts';
import type { SourcedItem } from './disjoint.ts';

const line = z.looseObject({
  id: z.string().min(1).optional(),
  question: z.string().min(1),
  answer: z.union([z.number(), z.string().min(1)]),
  /** Where the item comes from; an SFT line with the same source makes the two files overlap. */
  source: z.string().min(1).optional(),
});

function refuse(file: string, number: number, found: string, wanted: string): PlanError {
  return new PlanError(
    'bad-line',
    `reading ${file} line ${number}: found ${found}; wanted ${wanted}. Correct the line.`,
  );
}

/** The values of a JSON-lines file. Throws PlanError `bad-line` with the line's number. */
export function parseJsonLines(text: string, file: string): unknown[] {
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  if (lines.at(-1) === '') lines.pop();
  return lines.map((content, index) => {
    try {
      return JSON.parse(content) as unknown;
    } catch (error) {
      throw refuse(file, index + 1, (error as Error).message, 'one JSON value a line');
    }
  });
}

/** The items of dev.jsonl: {question, answer, id?, source?} a line. Throws PlanError `bad-line`. */
export function parseMathDev(text: string, file: string): (MathItem & SourcedItem)[] {
  const seen = new Set<string>();
  return parseJsonLines(text, file).map((value, index) => {
    const number = index + 1;
    const parsed = line.safeParse(value);
    if (!parsed.success) throw refuse(file, number, issuesText(parsed.error, value), '{"question", "answer"}');
    const { question, answer, source } = parsed.data;
    const id = parsed.data.id ?? `math-dev-${String(number).padStart(4, '0')}`;
    if (seen.has(id)) throw refuse(file, number, `the id ${JSON.stringify(id)} again`, 'each id once');
    seen.add(id);
    const gold = readGold(String(answer).trim());
    if (gold === null)
      throw refuse(file, number, `the answer ${JSON.stringify(answer)}`, 'a number such as 18 or 29.5');
    return { id, question: question.normalize('NFC').trim(), gold, source: source ?? null };
  });
}
