// What the inspector reads of an experiment's folder beside its training: the plan's few facts, journal, selection.
// Not a verification of the plan (shaderl verify). Invariant: a file that cannot be read is named, and the rest is shown.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { issuesText } from '../lib/zod-issues.ts';
import type { ExperimentFile } from './api.ts';

const planFacts = z.object({
  schema: z.enum(['shaderl.plan/1', 'shaderl.plan/2']),
  arm: z.string(),
  selectionRule: z.string(),
  recipe: z.object({
    name: z.string(),
    training: z.object({ steps: z.int() }),
    dev: z.object({ steps: z.array(z.int()) }),
    budget: z.object({ wallSeconds: z.number() }),
  }),
});

const selectionFacts = z.object({
  schema: z.literal('shaderl.selection/1'),
  rule: z.string(),
  points: z.array(
    z.object({ step: z.int(), eligible: z.boolean(), reasons: z.array(z.string()), rank: z.int().nullable() }),
  ),
  selected: z.int().nullable(),
  assessed: z.int(),
});

const recommendationFacts = z.object({
  schema: z.literal('shaderl.recommendation/1'),
  recommended: z.string(),
  step: z.int().nullable(),
  reason: z.string(),
});

async function read<T>(folder: string, name: string, schema: z.ZodType<T>, faults: string[]): Promise<T | null> {
  let text: string;
  try {
    text = await readFile(join(folder, name), 'utf8');
  } catch {
    // Not written yet.
    return null;
  }
  const refuse = (found: string) => {
    faults.push(`reading ${name}: found ${found}; wanted the file that \`shaderl run\` writes. Restore it.`);
    return null;
  };
  try {
    const value: unknown = JSON.parse(text);
    const parsed = schema.safeParse(value);
    return parsed.success ? parsed.data : refuse(issuesText(parsed.error, value));
  } catch (error) {
    return refuse((error as Error).message);
  }
}

/** The experiment's facts, or null where the folder holds no plan. */
export async function readExperiment(folder: string): Promise<ExperimentFile | null> {
  const faults: string[] = [];
  const plan = await read(folder, 'plan.json', planFacts, faults);
  if (!plan && faults.length === 0) return null;
  const hash = await readFile(join(folder, 'plan.sha256'), 'utf8').catch(() => '');
  return {
    planSha256: hash.slice(0, 64),
    recipe: plan?.recipe.name ?? '',
    arm: plan?.arm ?? '',
    steps: plan?.recipe.training.steps ?? 0,
    devSteps: plan?.recipe.dev.steps ?? [],
    wallSeconds: plan?.recipe.budget.wallSeconds ?? 0,
    selection: await read(folder, 'selection.json', selectionFacts, faults),
    recommendation: await read(folder, 'recommendation.json', recommendationFacts, faults),
    faults,
  };
}
