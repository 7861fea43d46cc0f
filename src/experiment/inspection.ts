// The language inspection: replies of preselected items with blanks for what a reader finds.
// Not a score. Invariant: the items were chosen by the plan, before any reply existed; the file says who looked.
import { z } from 'zod';
import { parseEvaluation } from '../evaluation/results.ts';
import { canonicalJson } from '../lib/canonical-json.ts';
import { EvaluationError } from '../lib/errors.ts';
import type { Storage } from '../lib/storage.ts';
import { issuesText } from '../lib/zod-issues.ts';
import { EVIDENCE } from './context.ts';
import type { Plan } from './plan.ts';
import { finalUnits, retentionUnits, unitFile } from './units.ts';

const reply = z.strictObject({
  suite: z.enum(['agent', 'mgsm']),
  id: z.string(),
  policy: z.string(),
  outcome: z.string(),
  /** The end of the last turn, at most 400 characters. */
  reply: z.string(),
  /** To be filled in: is it German, is it in the asked form? */
  language: z.string(),
  format: z.string(),
});

const inspectionSchema = z.strictObject({
  schema: z.literal('shaderl.language-inspection/1'),
  seed: z.int(),
  /** Who looked: a person's name, or a program's. */
  inspectedBy: z.string(),
  kindOfInspector: z.enum(['', 'person', 'program']),
  replies: z.array(reply).min(1),
});
export type Inspection = z.infer<typeof inspectionSchema>;

/** The file with its blanks. `step` is the assessed policy's. */
export async function inspectionFile(storage: Storage, plan: Plan, step: number): Promise<Inspection> {
  const { seed, agent, mgsm } = plan.inspection;
  const replies: Inspection['replies'] = [];
  for (const [suite, ids, units] of [
    ['agent', agent, finalUnits(plan.recipe, step)],
    ['mgsm', mgsm, retentionUnits(plan.recipe, step)],
  ] as const) {
    for (const unit of units.filter((one) => one.seed === seed)) {
      const { items } = parseEvaluation(await storage.readText(unitFile(unit)), `${storage.label}/${unitFile(unit)}`);
      const policy = unit.step === 0 ? 'baseline' : `step ${unit.step}`;
      for (const id of ids) {
        const item = items.find((one) => one.id === id);
        if (!item) throw missingItem(`${storage.label}/${unitFile(unit)}`, id);
        replies.push({ suite, id, policy, outcome: item.outcome, reply: item.finalText, language: '', format: '' });
      }
    }
  }
  return { schema: 'shaderl.language-inspection/1', seed, inspectedBy: '', kindOfInspector: '', replies };
}

/**
 * What of the file is not as it was written but for its blanks, or null: replies that were changed, left out or put in.
 * Throws EvaluationError `bad-inspection`, CheckpointError for a missing file.
 */
export async function inspectionProblem(storage: Storage, plan: Plan, step: number): Promise<string | null> {
  const label = `${storage.label}/${EVIDENCE.inspection}`;
  const { seed, replies } = parseInspection(await storage.readText(EVIDENCE.inspection), label);
  const made = await inspectionFile(storage, plan, step);
  const blank = (list: Inspection['replies']) => list.map((one) => ({ ...one, language: '', format: '' }));
  const [found, wanted] = [blank(replies), blank(made.replies)];
  if (seed !== made.seed) return `${label}: found seed ${seed}; wanted ${made.seed}, as the plan says`;
  if (found.length !== wanted.length) return `${label}: found ${found.length} replies; wanted ${wanted.length}`;
  const at = found.findIndex((reply, i) => canonicalJson(reply) !== canonicalJson(wanted[i]));
  if (at < 0) return null;
  const [other, own] = [canonicalJson(found[at]), canonicalJson(wanted[at])];
  return `${label}, reply ${at + 1}: found ${other}; wanted ${own}, as the evaluation has it, but for the blanks`;
}

function missingItem(label: string, id: string): EvaluationError {
  return new EvaluationError(
    'missing-item',
    `choosing replies of ${label}: found no item ${id}; wanted it, as the plan preselected it. Evaluate the unit ` +
      'again.',
  );
}

/** Reads the file back. Throws EvaluationError `bad-inspection` naming the field. */
export function parseInspection(text: string, label: string): Inspection {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw badInspection(label, (error as Error).message);
  }
  const parsed = inspectionSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw badInspection(label, issuesText(parsed.error, value));
}

function badInspection(label: string, found: string): EvaluationError {
  return new EvaluationError(
    'bad-inspection',
    `reading ${label}: found ${found}; wanted the inspection file with its blanks filled in and nothing else ` +
      'changed. ' +
      'Correct it; the replies stand in the evaluation files.',
  );
}

/** `done` only if every blank is filled and somebody is named. */
export function inspectionState({ inspectedBy, kindOfInspector, replies }: Inspection): {
  state: 'done' | 'open';
  filled: number;
  of: number;
  by: string;
} {
  const filled = replies.filter(({ language, format }) => language.trim() !== '' && format.trim() !== '').length;
  const named = inspectedBy.trim() !== '' && kindOfInspector !== '';
  const by = named ? `${inspectedBy.trim()} (${kindOfInspector})` : '';
  return { state: named && filled === replies.length ? 'done' : 'open', filled, of: replies.length, by };
}
