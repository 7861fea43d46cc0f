// Reads and writes evaluation files and item sets on disk. Not the schemas: those are in results.ts and mgsm.ts.
// Invariant: a file appears under its final name only when it is complete.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { EvaluationError } from '../lib/errors.ts';
import { type MathItem, parseMgsm } from './mgsm.ts';
import { checkEvaluation, type EvaluationFile, formatEvaluation, parseEvaluation } from './results.ts';

function readText(file: string, wanted: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new EvaluationError(
      'unreadable-file',
      `reading ${file}: ${(error as Error).message}; wanted ${wanted}. Check the path and its permissions.`,
      { cause: error },
    );
  }
}

/** Reads `shaderl evaluate --output`'s file. Throws EvaluationError naming the file and the field. */
export function readEvaluation(file: string): EvaluationFile {
  return parseEvaluation(readText(file, 'a shaderl.evaluation/1 file'), file);
}

/** Checks an evaluation and writes it; folders are made, and an existing file is replaced at once. */
export function writeEvaluation(file: string, evaluation: EvaluationFile): void {
  const text = formatEvaluation(checkEvaluation(evaluation, file));
  const partial = `${file}.${process.pid}.part`;
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(partial, text);
    renameSync(partial, file);
  } catch (error) {
    rmSync(partial, { force: true });
    throw new EvaluationError(
      'unwritable-file',
      `writing ${file}: ${(error as Error).message}; wanted a folder with space that can be written. ` +
        'Choose another --output.',
      { cause: error },
    );
  }
}

/** Reads an mgsm_de.tsv by path. Throws EvaluationError naming the file and the line. */
export function readMgsm(file: string): MathItem[] {
  return parseMgsm(readText(file, 'the MGSM file mgsm_de.tsv (question TAB answer)'), file);
}
