// Drives an experiment: refuses what may not run, opens an attempt, and takes the stages in order. Read this first.
// Not the stages (stages.ts) and not the work (ports.ts). Invariant: each stage begins only when all before it passed
// and their evidence verified; whatever happens, the journal tells how the attempt ended or its last heartbeat does.
import { STAGES, type Stage } from '../journal-events.ts';
import { PlanError, ShaderlError } from '../lib/errors.ts';
import { type StageContext, Stopped } from './context.ts';
import { requireSameDevice } from './device-facts.ts';
import { requireEvidence } from './evidence.ts';
import type { LoadedPlan } from './plan.ts';
import { planTraining } from './plan.ts';
import { requireUnchanged } from './plan-changes.ts';
import type { DeviceFacts, ExperimentPorts } from './ports.ts';
import { type ExperimentProgress, experimentProgress } from './progress.ts';
import { runStage } from './stages.ts';

export interface DriverOptions {
  resume: boolean;
  qualificationOnly: boolean;
}

export interface ExperimentOutcome {
  status: 'finished' | 'qualified' | 'interrupted' | 'budget-spent';
  /** The stage that the next attempt begins with; null when all have passed. */
  next: Stage | null;
  chargedSeconds: number;
}

/**
 * Runs (or goes on with) a plan in the folder of `ports.storage`. The caller holds the lock. Throws PlanError:
 * `needs-resume`, `other-plan`, `plan-changed`, `budget-spent`; DeviceError `other-device`; CheckpointError
 * `evidence-changed`; AuditError `not-reproducible`; and whatever the work itself throws, after journaling the attempt.
 */
export async function runExperiment(
  loaded: LoadedPlan,
  ports: ExperimentPorts,
  options: DriverOptions,
): Promise<ExperimentOutcome> {
  const { storage, journal } = ports;
  const before = experimentProgress(journal.entries);
  requireStartable(loaded, before, options, storage.label);
  if (before.next === null) {
    // A kill after the last stage may have left the report without the end of its attempt. A program or inputs that have
    // changed since would write another one: then it stays as it is.
    if ((await ports.planDifferences()).length === 0) await ports.report();
    return { status: 'finished', next: null, chargedSeconds: before.chargedSeconds };
  }
  requireUnchanged(await ports.planDifferences(), storage.label);
  await requireEvidence(storage, journal.entries);
  const budget = loaded.plan.recipe.budget;
  if (before.chargedSeconds >= budget.wallSeconds) throw budgetSpent(storage.label, before, budget.wallSeconds);

  if (before.planSha256 === null) {
    await journal.append({ kind: 'experiment-start', data: { planSha256: loaded.sha256 } });
  }
  const attempt = before.attempts.length + 1;
  const { host, pid, versions } = ports;
  const { resume } = options;
  await journal.append({
    kind: 'attempt-start',
    data: { attempt, host, pid, resume, chargedSeconds: before.chargedSeconds, versions },
  });
  let stage: Stage | null = null;
  const stopReason = () => {
    if (ports.stopRequested()) return 'asked' as const;
    return before.chargedSeconds + ports.seconds() >= budget.wallSeconds ? ('budget' as const) : null;
  };
  let beating: Promise<unknown> = Promise.resolve();
  const beat = () => {
    // A failed append is met again by the next one, which the driver waits for: nothing is swallowed for good.
    beating = journal
      .append({ kind: 'heartbeat', data: { attempt, stage, seconds: ports.seconds() } })
      .catch(() => undefined);
  };
  const timer = setInterval(beat, budget.heartbeatSeconds * 1000);
  const end = async (status: 'finished' | 'qualified' | 'interrupted' | 'failed' | 'budget-spent', reason: string) => {
    clearInterval(timer);
    await beating;
    await journal.append({ kind: 'attempt-end', data: { attempt, status, reason, seconds: ports.seconds() } });
  };
  const outcome = (status: ExperimentOutcome['status']): ExperimentOutcome => {
    const { next, chargedSeconds } = experimentProgress(journal.entries);
    return { status, next, chargedSeconds };
  };
  try {
    const context: StageContext = {
      ...loaded,
      ports,
      attempt,
      run: await planTraining(loaded.plan, `${storage.label}/plan.json`),
      device: await attemptDevice(ports, before, attempt),
      stopReason,
    };
    for (const name of STAGES) {
      if (before.done.has(name)) continue;
      stage = name;
      await runStage(name, context);
      if (name === 'qualification' && options.qualificationOnly) {
        await end('qualified', 'asked to stop after the qualification');
        return outcome('qualified');
      }
    }
    await end('finished', '');
    // Once more, now that the attempt is closed: its content is the same, its record is complete.
    await ports.report();
    return outcome('finished');
  } catch (error) {
    if (error instanceof Stopped) {
      const status = error.reason === 'budget' ? 'budget-spent' : 'interrupted';
      await end(status, error.reason === 'budget' ? `the budget of ${budget.wallSeconds} s is spent` : 'asked to stop');
      return outcome(status);
    }
    const reason = error instanceof ShaderlError ? `${error.code}: ${error.message}` : String(error);
    // If the journal itself cannot be written, the first error is the news.
    await end('failed', reason).catch(() => undefined);
    throw error;
  } finally {
    clearInterval(timer);
  }
}

/**
 * Opens service and device if a stage still needs them, and refuses another device than the one that the experiment
 * began on. Retention asks questions alone.
 */
async function attemptDevice(
  ports: ExperimentPorts,
  before: ExperimentProgress,
  attempt: number,
): Promise<{ facts: DeviceFacts; qualification: string } | null> {
  if (before.next === 'report') return null;
  if (before.next !== 'retention') await ports.openService(attempt);
  const found = await ports.device();
  const preflight = before.done.get('preflight');
  if (preflight) {
    requireSameDevice(preflight.data.facts, found.facts, ports.storage.label);
  }
  return found;
}

function requireStartable(
  { sha256 }: LoadedPlan,
  before: ExperimentProgress,
  { resume }: DriverOptions,
  label: string,
): void {
  if (before.planSha256 !== null && before.planSha256 !== sha256) {
    throw new PlanError(
      'other-plan',
      `running ${label}/plan.json: found SHA-256 ${sha256}; its journal was begun with ${before.planSha256}. ` +
        'Restore the plan, or prepare a new one in another folder.',
    );
  }
  const last = before.attempts.at(-1);
  // A run that was asked to stop after the qualification was not interrupted.
  if (!last || resume || last.status === 'qualified' || last.status === 'finished') return;
  const how = last.status === 'never-closed' ? 'was never closed' : `ended as ${last.status}`;
  throw new PlanError(
    'needs-resume',
    `running ${label}/plan.json: found attempt ${last.attempt}, which ${how}, before stage ${before.next}; wanted a ` +
      'run that was not begun. Give --resume to go on with it.',
  );
}

function budgetSpent(label: string, { chargedSeconds, attempts }: ExperimentProgress, wallSeconds: number): PlanError {
  return new PlanError(
    'budget-spent',
    `running ${label}/plan.json: found ${chargedSeconds} s charged to ${attempts.length} attempts; the plan allows ` +
      `${wallSeconds} s in all. Nothing more is run; \`shaderl report\` shows what there is.`,
  );
}
