// Writes report.json and report.html of a run into its folder. Not the content. Invariant: the JSON is written first,
// so an HTML file never stands without the figures it was made from.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EvaluationError } from '../lib/errors.ts';
import { renderReportHtml } from './html.ts';
import type { ReportJson } from './schema.ts';

/** Writes both files into `folder` and returns their paths. Throws EvaluationError naming the folder. */
export function writeReport(folder: string, report: ReportJson): { json: string; html: string } {
  const paths = { json: join(folder, 'report.json'), html: join(folder, 'report.html') };
  const html = renderReportHtml(report);
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(paths.json, `${JSON.stringify(report, null, 2)}\n`);
    writeFileSync(paths.html, html);
  } catch (error) {
    throw new EvaluationError(
      'unwritable-report',
      `writing the report into ${folder}: ${(error as Error).message}; wanted a folder that can be written. ` +
        'Choose another folder, or free some space.',
      { cause: error },
    );
  }
  return paths;
}
