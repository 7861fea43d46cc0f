// What an experiment is doing, from its files alone: works while it runs, beside the process that writes.
// Not a verification (verify-node.ts). Invariant: reads only; a line that is being written is left alone.
import { join, resolve } from 'node:path';
import { effectiveEntries, readJournal } from '../journal.ts';
import type { JournalEntry, Stage } from '../journal-events.ts';
import type { Storage } from '../lib/storage.ts';
import { createNodeStorage } from '../lib/storage-node.ts';
import { loadPlan } from './freeze-node.ts';
import { type LockState, readLock } from './lock-node.ts';
import { PLAN_FILE, TRAINING_FOLDER } from './plan.ts';
import { experimentProgress } from './progress.ts';
import { QUALIFICATION_BRANCHES, QUALIFICATION_FOLDER } from './qualify-resume.ts';
import { type TimeLeft, timeLeft } from './time-left.ts';
import { devUnits, finalUnits, retentionUnits } from './units.ts';

export interface ExperimentStatus {
  folder: string;
  planSha256: string;
  recipe: string;
  /** `running`: a live process holds the lock; `held elsewhere`: another host's does, which cannot be seen from here. */
  state:
    | 'not begun'
    | 'running'
    | 'held elsewhere'
    | 'interrupted'
    | 'qualified'
    | 'finished'
    | 'budget-spent'
    | 'failed';
  writer: { host: string; pid: number } | null;
  stage: Stage | null;
  done: Stage[];
  training: { step: number; steps: number; metrics: Record<string, number> } | null;
  evaluations: { done: number; of: number };
  budget: { wallSeconds: number; chargedSeconds: number; leftSeconds: number };
  /** Null when all stages have passed. */
  timeLeft: TimeLeft | null;
  lastLine: { time: string; kind: string } | null;
  attempts: number;
  reason: string;
}

function stateOf(lock: LockState, last: string | undefined, next: Stage | null): ExperimentStatus['state'] {
  if (lock === 'held') return 'running';
  if (lock === 'other-host') return 'held elsewhere';
  if (next === null) return 'finished';
  if (last === undefined) return 'not begun';
  return last === 'never-closed' || last === 'finished' ? 'interrupted' : (last as ExperimentStatus['state']);
}

const stepSeconds = (entries: readonly JournalEntry[]) =>
  effectiveEntries(entries).flatMap((entry) =>
    entry.kind === 'step' ? [entry.data.metrics['step_time'] ?? sumOf(entry.data.seconds)] : [],
  );

const sumOf = (seconds: Readonly<Record<string, number>>) =>
  Object.values(seconds).reduce((total, value) => total + value, 0);

/** Seconds of the steps that the branches of the last qualification have made so far. */
async function qualificationSteps(folder: string, storage: Storage): Promise<number[]> {
  const attempts = (await storage.list(QUALIFICATION_FOLDER)).map(({ name }) => Number(name.replace('attempt-', '')));
  const root = join(folder, QUALIFICATION_FOLDER, `attempt-${Math.max(0, ...attempts)}`);
  const seconds: number[] = [];
  for (const branch of QUALIFICATION_BRANCHES) {
    const { entries } = await readJournal(createNodeStorage(join(root, branch)), 'journal.jsonl');
    seconds.push(...stepSeconds(entries));
  }
  return seconds;
}

/** Reads an experiment's folder. Throws PlanError or CheckpointError for a plan or journal that was altered. */
export async function experimentStatus(dir: string): Promise<ExperimentStatus> {
  const folder = resolve(dir);
  const { plan, sha256 } = await loadPlan(join(folder, PLAN_FILE), folder);
  const storage = createNodeStorage(folder);
  const { entries } = await readJournal(storage, 'journal.jsonl');
  const training = (await readJournal(createNodeStorage(join(folder, TRAINING_FOLDER)), 'journal.jsonl')).entries;
  const { attempts, chargedSeconds, done, next, open } = experimentProgress(entries);
  const lock = readLock(folder);
  const live = lock.state === 'held' || lock.state === 'other-host';
  const steps = effectiveEntries(training).filter((entry) => entry.kind === 'step');
  const last = steps.at(-1);
  const { recipe } = plan;
  const selection = done.get('selection');
  const assessed = Number(selection?.data.facts['assessed'] ?? recipe.training.steps);
  const units = devUnits(recipe).length + finalUnits(recipe, assessed).length + retentionUnits(recipe, assessed).length;
  const end = entries.at(-1);
  const attempt = attempts.at(-1);
  return {
    folder,
    planSha256: sha256,
    recipe: recipe.name,
    state: stateOf(lock.state, attempt?.status, next),
    writer: live && lock.holder ? { host: lock.holder.host, pid: lock.holder.pid } : null,
    stage: open ?? next,
    done: [...done.keys()],
    training: last ? { step: last.data.step, steps: recipe.training.steps, metrics: last.data.metrics } : null,
    evaluations: { done: entries.filter(({ kind }) => kind === 'evaluation').length, of: units },
    budget: {
      wallSeconds: recipe.budget.wallSeconds,
      chargedSeconds,
      leftSeconds: Math.max(0, recipe.budget.wallSeconds - chargedSeconds),
    },
    timeLeft: timeLeft({
      recipe,
      entries,
      done: new Set(done.keys()),
      open,
      trainingSteps: stepSeconds(training),
      qualificationSteps: done.has('training') || steps.length > 1 ? [] : await qualificationSteps(folder, storage),
      live,
      reusesBaseline: plan.matched?.baseline === 'reuse',
    }),
    lastLine: end ? { time: end.time, kind: end.kind } : null,
    attempts: attempts.length,
    reason: attempt?.reason ?? '',
  };
}
