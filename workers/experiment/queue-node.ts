// The sequential controller of two arms: runs the second one when the first has released the GPU by its own journal.
// Not a scheduler: it watches one folder. Invariant: the first arm's folder is only read; the second one starts only
// after the first one's terminal entry and the release of its lock, and only if its plan is matched to that very plan.
import { dirname, join, resolve } from 'node:path';
import { sleep } from '../../src/environments/service/deadlines.ts';
import type { ExperimentOutcome } from '../../src/experiment/driver.ts';
import { planDifferences } from '../../src/experiment/freeze-node.ts';
import { type ArmState, firstArmState, loadPlanFile, requirePair } from '../../src/experiment/pair-node.ts';
import { PLAN_FILE } from '../../src/experiment/plan.ts';
import { requireUnchanged } from '../../src/experiment/plan-changes.ts';
import { PlanError } from '../../src/lib/errors.ts';
import { type RunExperimentOptions, runPlan } from '../experiment-node.ts';
import { servicePackageChanges } from './service-plan.ts';

export interface QueueOptions {
  /** plan.json of the first arm. */
  after: string;
  /** plan.json of the second arm. */
  plan: string;
  /** Most seconds to wait for the first arm; null: no limit. */
  waitSeconds: number | null;
  run: Omit<RunExperimentOptions, 'plan' | 'qualificationOnly'>;
}

export interface QueueOutcome {
  status: ExperimentOutcome['status'] | 'waiting';
  after: ArmState;
  plan: { folder: string; planSha256: string; arm: string };
  /** Null if the second arm was not started. */
  run: (ExperimentOutcome & { folder: string }) | null;
}

const POLL_MS = 500;
/** Validates both arms and tells where the first one stands. Contacts no device and no service. Throws PlanError. */
export async function checkQueue(options: Pick<QueueOptions, 'after' | 'plan'>): Promise<QueueOutcome> {
  const { first, second } = await requirePair(options.after, options.plan);
  const folder = dirname(resolve(options.plan));
  requireUnchanged(await planDifferences(second.plan, folder), folder);
  const [changed] = servicePackageChanges(second.plan);
  if (changed !== undefined) {
    throw new PlanError(
      'service-changed',
      `checking ${join(folder, PLAN_FILE)} against ${changed}. Restore that version, or prepare a new plan.`,
    );
  }
  const after = await firstArmState(first, dirname(resolve(options.after)));
  return { status: 'waiting', after, plan: { folder, planSha256: second.sha256, arm: second.plan.arm }, run: null };
}

/** Waits for the first arm's release, then runs the second one. */
export async function runQueue(options: QueueOptions): Promise<QueueOutcome> {
  const checked = await checkQueue(options);
  const first = await loadPlanFile(options.after);
  const { stopRequested = () => false, progress = {} } = options.run;
  const until = options.waitSeconds === null ? null : performance.now() + options.waitSeconds * 1000;
  let { after } = checked;
  let told = '';
  while (!after.released) {
    if (after.state !== told) progress.onNote?.(`waiting for ${after.folder}: ${after.state}`);
    told = after.state;
    if (stopRequested()) return { ...checked, status: 'interrupted', after };
    if (until !== null && performance.now() >= until) return { ...checked, after };
    await sleep(POLL_MS);
    after = await firstArmState(first, after.folder);
  }
  progress.onNote?.(`${after.folder} released the GPU: ${after.state}, line ${after.terminal!.line} of its journal`);
  const run = await runPlan({ ...options.run, plan: options.plan, qualificationOnly: false });
  return { status: run.status, after, plan: checked.plan, run };
}
