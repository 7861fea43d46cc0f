// Lets a merged model be evaluated only with its audit: per-tensor figures and the tree hash that they were made with.
// Not the merge. Invariant: a folder whose bytes are not the audited ones is refused.
import { z } from 'zod';
import { sha256Text } from '../journal-events.ts';
import { EvaluationError } from '../lib/errors.ts';
import { issuesText } from '../lib/zod-issues.ts';
import type { ExperimentPorts } from './ports.ts';

const tensorFigures = z.looseObject({ changedShare: z.number(), largestLostUpdate: z.number() });

/** What must stand in merge-audit.json; the other members are figures for the report. */
const mergeAudit = z.looseObject({
  treeSha256: sha256Text,
  verdict: z.enum(['equivalent', 'not equivalent']),
  totals: tensorFigures,
  tensors: z
    .record(z.string(), tensorFigures)
    .refine((tensors) => Object.keys(tensors).length > 0, 'at least one tensor'),
});
export type AuditedMerge = z.infer<typeof mergeAudit>;

/** Parses merge-audit.json. Throws EvaluationError `no-merge-audit`. */
export function parseMergeAudit(text: string, label: string): AuditedMerge {
  let value: unknown = null;
  try {
    value = JSON.parse(text);
  } catch {
    // Reported below: null is no audit.
  }
  const parsed = mergeAudit.safeParse(value);
  if (parsed.success) return parsed.data;
  throw noAudit(label, issuesText(parsed.error, value));
}

function noAudit(label: string, found: string): EvaluationError {
  return new EvaluationError(
    'no-merge-audit',
    `evaluating the merged model of ${label}: found ${found}; wanted its per-tensor audit, without which no ` +
      'merged model ' +
      'is evaluated. Merge again with `shaderl merge`.',
  );
}

export const mergedFolder = (step: number) => `merged/step-${String(step).padStart(6, '0')}`;

/** The folder of a step's merged model, after its audit and its bytes were checked against each other. */
export async function requireMerged({ storage, mergedTree }: ExperimentPorts, step: number): Promise<string> {
  const folder = mergedFolder(step);
  const file = `${folder}/merge-audit.json`;
  if (!(await storage.exists(file))) throw noAudit(`${storage.label}/${file}`, 'no such file');
  const { treeSha256 } = parseMergeAudit(await storage.readText(file), `${storage.label}/${file}`);
  const found = await mergedTree(folder);
  if (found === treeSha256) return folder;
  throw new EvaluationError(
    'other-merge',
    `evaluating ${storage.label}/${folder}: found files with tree SHA-256 ${found}; its audit was made of ` +
      `${treeSha256}. ` +
      'The folder was changed after its audit: restore it.',
  );
}
