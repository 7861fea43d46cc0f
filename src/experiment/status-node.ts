// What an experiment is doing, from its files alone: works while it runs, beside the process that writes.
// Not a verification (verify-node.ts). Invariant: reads only; a line that is being written is left alone.
import { join, resolve } from 'node:path';
import { effectiveEntries, readJournal } from '../journal.ts';
import type { JournalEntry, Stage } from '../journal-events.ts';
import { createNodeStorage } from '../lib/storage-node.ts';
import { loadPlan } from './freeze-node.ts';
import { type LockState, readLock } from './lock-node.ts';
import { PLAN_FILE, TRAINING_FOLDER } from './plan.ts';
import { experimentProgress } from './progress.ts';
import { devUnits, finalUnits, retentionUnits } from './units.ts';

export interface ExperimentStatus {
  folder: string;
  planSha256: string;
  recipe: string;
  /** `running`: a live process holds the lock; `held elsewhere`: another host does. */
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
  /** Seconds that the training's remaining steps would take at the pace of its last ten; null before two steps. */
  trainingSecondsLeft: number | null;
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

function pace(steps: readonly JournalEntry[]): number | null {
  const recent = steps
    .slice(-10)
    .flatMap((entry) => (entry.kind === 'step' ? [entry.data.metrics['step_time'] ?? 0] : []));
  return recent.length < 2 ? null : recent.reduce((sum, seconds) => sum + seconds, 0) / recent.length;
}

/** Reads an experiment's folder. Throws PlanError or CheckpointError for a plan or journal that was altered. */
export async function experimentStatus(dir: string): Promise<ExperimentStatus> {
  const folder = resolve(dir);
  const { plan, sha256 } = await loadPlan(join(folder, PLAN_FILE), folder);
  const { entries } = await readJournal(createNodeStorage(folder), 'journal.jsonl');
  const training = (await readJournal(createNodeStorage(join(folder, TRAINING_FOLDER)), 'journal.jsonl')).entries;
  const { attempts, chargedSeconds, done, next, open } = experimentProgress(entries);
  const lock = readLock(folder);
  const steps = effectiveEntries(training).filter((entry) => entry.kind === 'step');
  const last = steps.at(-1);
  const { recipe } = plan;
  const selection = done.get('selection');
  const assessed = Number(selection?.data.facts['assessed'] ?? recipe.training.steps);
  const units = devUnits(recipe).length + finalUnits(recipe, assessed).length + retentionUnits(recipe, assessed).length;
  const each = pace(steps);
  const end = entries.at(-1);
  const attempt = attempts.at(-1);
  const left = recipe.training.steps - steps.length;
  return {
    folder,
    planSha256: sha256,
    recipe: recipe.name,
    state: stateOf(lock.state, attempt?.status, next),
    writer: lock.state === 'held' && lock.holder ? { host: lock.holder.host, pid: lock.holder.pid } : null,
    stage: open ?? next,
    done: [...done.keys()],
    training: last ? { step: last.data.step, steps: recipe.training.steps, metrics: last.data.metrics } : null,
    evaluations: { done: entries.filter(({ kind }) => kind === 'evaluation').length, of: units },
    budget: {
      wallSeconds: recipe.budget.wallSeconds,
      chargedSeconds,
      leftSeconds: Math.max(0, recipe.budget.wallSeconds - chargedSeconds),
    },
    trainingSecondsLeft: each === null || done.has('training') ? null : each * left,
    lastLine: end ? { time: end.time, kind: end.kind } : null,
    attempts: attempts.length,
    reason: attempt?.reason ?? '',
  };
}
