// What the two arms of an experiment have in common, and where two plans differ in it.
// Not a preparation. Pure. Invariant: everything of a plan is shared but its arm, its service, the name of its recipe and
// its relation to another plan.
import { canonicalJson } from '../lib/canonical-json.ts';
import { type Difference, jsonDifference } from './compare-branches.ts';
import { PLAN_FILE, type Plan } from './plan.ts';
import type { Recipe } from './recipe.ts';

const SHARED = [
  'inputs',
  'data',
  'disjointness',
  'positions',
  'training',
  'trainingSha256',
  'selectionRule',
  'inspection',
  'kernels',
  'program',
] as const satisfies (keyof Plan)[];

/** A recipe without what may differ between arms. */
function sharedRecipe({ name: _name, service: _service, ...rest }: Recipe): Omit<Recipe, 'name' | 'service'> {
  return rest;
}

/** The first key of two recipes that must be equal and is not. `left` is the first arm's. */
export function recipeDifference(first: Recipe, second: Recipe): Difference | null {
  return jsonDifference('recipe', sharedRecipe(first), sharedRecipe(second));
}

/** The place of a difference, with the name of the file where it is one of a list. */
function placeText(plan: Plan, place: string): string {
  const list = /^(.*)\[(\d+)\]\.[a-z0-9]+$/.exec(place);
  if (!list) return place;
  const files = list[1]!.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown>)?.[key], plan);
  const path = Array.isArray(files) ? (files[Number(list[2])] as { path?: string } | undefined)?.path : undefined;
  return path === undefined ? place : `${place} (${path})`;
}

/** The first difference of two plans in what both arms share, as place and both values; null if there is none. */
export function sharedDifference(first: Plan, second: Plan): { place: string; first: string; second: string } | null {
  const recipe = recipeDifference(first.recipe, second.recipe);
  if (recipe) return { place: `recipe.${recipe.tensor}`, first: recipe.left, second: recipe.right };
  for (const member of SHARED) {
    if (canonicalJson(first[member]) === canonicalJson(second[member])) continue;
    const found = jsonDifference(PLAN_FILE, first[member], second[member], member);
    if (found) return { place: placeText(first, found.tensor), first: found.left, second: found.right };
  }
  return null;
}
