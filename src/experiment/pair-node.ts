// Where the first of two arms stands, and whether the second is its match: what the controller decides by.
// Not the controller (workers/experiment/queue-node.ts). Invariant: reads only; an arm has released the GPU when its
// journal has a terminal entry and nobody holds its lock.
import { dirname, resolve } from 'node:path';
import { readJournal } from '../journal.ts';
import { PlanError } from '../lib/errors.ts';
import { createNodeStorage } from '../lib/storage-node.ts';
import { loadPlan } from './freeze-node.ts';
import { readLock } from './lock-node.ts';
import { type LoadedPlan, PLAN_FILE } from './plan.ts';
import { experimentProgress } from './progress.ts';
import { sharedDifference } from './shared-plan.ts';

export interface ArmState {
  folder: string;
  planSha256: string;
  arm: string;
  /** Whether the first arm has released the GPU. */
  released: boolean;
  /** Its terminal entry, or what is waited for. */
  state: string;
  terminal: { line: number; sha256: string } | null;
}

/** After these nothing more of an arm is ever run. */
const TERMINAL = ['finished', 'budget-spent'];

export const loadPlanFile = (file: string): Promise<LoadedPlan> => loadPlan(resolve(file), dirname(resolve(file)));

/** Refuses plans that are not two arms of one experiment. Throws PlanError. */
export async function requirePair(
  afterFile: string,
  planFile: string,
): Promise<{ first: LoadedPlan; second: LoadedPlan }> {
  const [first, second] = [await loadPlanFile(afterFile), await loadPlanFile(planFile)];
  const doing = `queueing ${resolve(planFile)} after ${resolve(afterFile)}`;
  const { matched } = second.plan;
  if (matched === null || matched.planSha256 !== first.sha256) {
    throw new PlanError(
      'other-plan',
      `${doing}: found a plan matched to ${matched?.planSha256 ?? 'none'}; wanted ${first.sha256}, the SHA-256 of the ` +
        'first plan. Prepare the second arm with --baseline-from the first.',
    );
  }
  if (matched.folder !== dirname(resolve(afterFile))) {
    throw new PlanError(
      'relocated-arm',
      `${doing}: found the first arm in ${dirname(resolve(afterFile))}; the second plan froze ${matched.folder}. Move ` +
        'it back, or prepare the second arm from where it is.',
    );
  }
  const difference = sharedDifference(first.plan, second.plan);
  if (difference) {
    throw new PlanError(
      'not-matched',
      `${doing}: found ${difference.place} ${difference.second} in the second; wanted ${difference.first}, as in the ` +
        'first. Prepare the second arm anew.',
    );
  }
  return { first, second };
}

/** Whether the first arm has acknowledged its release of the GPU. Reads only. */
export async function firstArmState({ plan, sha256 }: LoadedPlan, folder: string): Promise<ArmState> {
  const { entries } = await readJournal(createNodeStorage(folder), 'journal.jsonl');
  const { planSha256, attempts, next } = experimentProgress(entries);
  if (planSha256 !== null && planSha256 !== sha256) {
    throw new PlanError(
      'other-plan',
      `reading ${folder}/journal.jsonl: found a run of plan ${planSha256}; wanted ${sha256}, as ${PLAN_FILE} beside it ` +
        'is. Restore the folder.',
    );
  }
  const about = { folder, planSha256: sha256, arm: plan.arm };
  const waiting = (state: string): ArmState => ({ ...about, released: false, state, terminal: null });
  const last = attempts.at(-1);
  const lock = readLock(folder);
  if (!last) return waiting('it was not begun');
  if (lock.state === 'held' || lock.state === 'other-host') {
    return waiting(`pid ${lock.holder?.pid ?? 'unknown'} on ${lock.holder?.host ?? 'an unknown host'} holds its lock`);
  }
  const end = entries.findLast((entry) => entry.kind === 'attempt-end' && entry.data.attempt === last.attempt);
  if (!end || !TERMINAL.includes(last.status) || (last.status === 'finished' && next !== null)) {
    return waiting(`its attempt ${last.attempt} ended as ${last.status}: resume it`);
  }
  return { ...about, released: true, state: last.status, terminal: { line: end.index + 1, sha256: end.sha256 } };
}
