// What changed since a plan was frozen, and the refusal that names it. Not the hashing (freeze-node.ts). Pure.
// Invariant: the first difference is named with the file, the frozen hash, the hash found and the first byte.
import { PlanError } from '../lib/errors.ts';
import { type Place, placeText } from './place.ts';
import { PLAN_FILE } from './plan.ts';

/** A file whose content is not what the plan froze; null stands for no such file. */
export interface PlanDifference {
  file: string;
  frozen: string | null;
  found: string | null;
  /** The first byte that differs; null where one of both is no file. */
  place: Place | null;
}

const hash = (value: string | null) => (value === null ? 'no such file' : `SHA-256 ${value}`);

/** What was found and what was wanted, without the file's name. */
export function changeText({ frozen, found, place }: PlanDifference): string {
  return `found ${hash(found)}; the plan froze ${hash(frozen)}${place ? `; ${placeText(place)}` : ''}`;
}

/** Refuses to go on with a plan of which anything changed; the message names the first file and how many there are. */
export function requireUnchanged(differences: readonly PlanDifference[], folder: string): void {
  const [first] = differences;
  if (!first) return;
  const more = differences.length > 1 ? ` ${differences.length - 1} more differ: see \`shaderl verify-plan\`.` : '';
  throw new PlanError(
    'plan-changed',
    `checking ${folder}/${PLAN_FILE} against ${first.file}: ${changeText(first)}.${more} Restore the file, or ` +
      'prepare a new plan in another folder.',
  );
}
