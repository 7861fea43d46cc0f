// The second arm: what it takes from the first one, and that nothing else differs.
// Not a run. Invariant: the first arm's folder is only read; a plan of a second arm equals the first's in everything but
// its arm, its service and the name of its recipe.
import { readFile } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';
import { PlanError } from '../lib/errors.ts';
import { sha256Hex } from '../lib/sha256-node.ts';
import { DATA_FILES, type DataName } from './data.ts';
import { loadPlan } from './freeze-node.ts';
import { type LoadedPlan, PLAN_FILE, type Plan } from './plan.ts';
import type { Recipe } from './recipe.ts';
import { recipeDifference, sharedDifference } from './shared-plan.ts';

export interface FirstArm extends LoadedPlan {
  folder: string;
  /** Bytes of the generated data, as the first arm has them. */
  data: Record<DataName, Uint8Array>;
}

/** Reads the first arm. Throws PlanError `bad-plan`, `plan-changed`, `unreadable-input`, `second-arm`. */
export async function readFirstArm(dir: string): Promise<FirstArm> {
  const folder = resolve(dir);
  const loaded = await loadPlan(join(folder, PLAN_FILE), folder);
  const { plan } = loaded;
  if (plan.matched) {
    throw new PlanError(
      'second-arm',
      `preparing a second arm from ${folder}: found a second arm itself, matched to ${plan.matched.folder}; wanted a ` +
        'first one. Give the first arm.',
    );
  }
  const baseline = resolve(plan.inputs.baseline.folder);
  if (baseline === folder || baseline.startsWith(`${folder}${sep}`)) {
    throw new PlanError(
      'candidate-baseline',
      `preparing a second arm from ${folder}: found its baseline ${baseline} inside that run; wanted the SFT ` +
        'checkpoint that both arms start from, never a candidate. Prepare the first arm from the checkpoint itself.',
    );
  }
  const data = {} as Record<DataName, Uint8Array>;
  for (const [name, path] of Object.entries(DATA_FILES) as [DataName, string][]) {
    const bytes = await readFile(join(folder, path));
    const found = sha256Hex(bytes);
    if (found !== plan.data[name].sha256) {
      throw new PlanError(
        'plan-changed',
        `copying ${join(folder, path)}: found SHA-256 ${found}; the first arm's plan froze ${plan.data[name].sha256}. ` +
          'Restore the file.',
      );
    }
    data[name] = bytes;
  }
  return { ...loaded, folder, data };
}

/** Refuses a recipe for the second arm that changes a number. Throws PlanError `other-recipe`. */
export function requireMatchingRecipe(first: FirstArm, recipe: Recipe): void {
  const difference = recipeDifference(first.plan.recipe, recipe);
  if (!difference) return;
  throw new PlanError(
    'other-recipe',
    `preparing a second arm from ${first.folder}: found recipe key "${difference.tensor}" with ${difference.right}; ` +
      `wanted ${difference.left}, as the first arm has it. Only "service" and "name" may differ between arms.`,
  );
}

/** Refuses a second arm's plan that differs where both must be equal. Throws PlanError `not-matched`. */
export function requireMatched(first: FirstArm, plan: Plan): void {
  const difference = sharedDifference(first.plan, plan);
  if (!difference) return;
  throw new PlanError(
    'not-matched',
    `preparing a second arm from ${first.folder}/${PLAN_FILE}: found ${difference.place} ${difference.second}; wanted ` +
      `${difference.first}, as the first arm froze it. Restore what changed since, or prepare both arms anew.`,
  );
}
