// Where an experiment stands, read from its journal: stages done, attempts, and the account of the budget.
// Not a driver. Pure. Invariant: the account only grows, and an attempt that was never closed is charged up to its last
// heartbeat, rounded up to whole seconds, at least one.
import type { JournalEntry, Stage } from '../journal-events.ts';
import { STAGES } from '../journal-events.ts';

type Entry<K extends JournalEntry['kind']> = Extract<JournalEntry, { kind: K }>;
export type StageEnd = Entry<'stage-end'>;

export interface Attempt {
  attempt: number;
  host: string;
  pid: number;
  started: string;
  status: Entry<'attempt-end'>['data']['status'] | 'never-closed';
  reason: string;
  /** Of the budget, whole seconds. */
  chargedSeconds: number;
}

export interface ExperimentProgress {
  planSha256: string | null;
  attempts: Attempt[];
  chargedSeconds: number;
  done: Map<Stage, StageEnd>;
  /** The first stage that has not passed; null when all have. */
  next: Stage | null;
  /** Stages that were begun by the last attempt and have not passed. */
  open: Stage | null;
}

/** Whole seconds that an attempt of `seconds` is charged with. */
export function charge(seconds: number): number {
  return Math.max(1, Math.ceil(seconds));
}

/** Reads the entries of an experiment's journal. Stages count only in their order. */
export function experimentProgress(entries: readonly JournalEntry[]): ExperimentProgress {
  const start = entries.find((entry) => entry.kind === 'experiment-start');
  const attempts: Attempt[] = [];
  const done = new Map<Stage, StageEnd>();
  let open: Stage | null = null;
  for (const entry of entries) {
    if (entry.kind === 'attempt-start') {
      const { attempt, host, pid } = entry.data;
      attempts.push({ attempt, host, pid, started: entry.time, status: 'never-closed', reason: '', chargedSeconds: 1 });
      open = null;
    } else if (entry.kind === 'heartbeat') {
      const last = attempts.at(-1);
      if (last) last.chargedSeconds = charge(entry.data.seconds);
    } else if (entry.kind === 'attempt-end') {
      const last = attempts.at(-1);
      const { status, reason, seconds } = entry.data;
      if (last) Object.assign(last, { status, reason, chargedSeconds: charge(seconds) });
    } else if (entry.kind === 'stage-start') {
      open = entry.data.stage;
    } else if (entry.kind === 'stage-end') {
      done.set(entry.data.stage, entry);
      open = null;
    }
  }
  return {
    planSha256: start?.kind === 'experiment-start' ? start.data.planSha256 : null,
    attempts,
    chargedSeconds: attempts.reduce((sum, { chargedSeconds }) => sum + chargedSeconds, 0),
    done,
    next: STAGES.find((stage) => !done.has(stage)) ?? null,
    open,
  };
}
