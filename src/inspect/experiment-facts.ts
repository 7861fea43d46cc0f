// A preregistered experiment as the Run view shows it: stages, attempts, the account, DEV points and the selection.
// Not the protocol (src/experiment) and no verdict of its own: every number is read from journal and selection file.
// Invariant: what has not happened yet is absent, never a zero.
import { experimentProgress } from '../experiment/progress.ts';
import type { JournalEntry, Stage } from '../journal-events.ts';
import { STAGES } from '../journal-events.ts';
import type { ExperimentOverview } from './api.ts';

export interface StageRow {
  stage: Stage;
  state: 'passed' | 'under way' | 'stopped' | 'not begun';
  /** ISO time of its end, and the facts that the journal keeps of it. */
  ended: string | null;
  facts: Record<string, string | number | boolean>;
}

export interface DevRow {
  /** 0 is the baseline. */
  step: number;
  strict: Score | null;
  math: Score | null;
  toolErrors: number | null;
  /** By the rule; null for the baseline and before the selection. */
  rank: number | null;
  eligible: boolean | null;
  reasons: readonly string[];
  chosen: 'selected' | 'diagnostic' | null;
  /** The agent evaluation's file. */
  file: string | null;
}

export interface Score {
  correct: number;
  samples: number;
}

export interface ExperimentFacts {
  stages: StageRow[];
  state: string;
  attempts: ReturnType<typeof experimentProgress>['attempts'];
  budget: { wallSeconds: number; chargedSeconds: number };
  device: Record<string, string>;
  dev: DevRow[];
  /** What goes on into the final test, and why; null before the selection. */
  selection: { selected: number | null; assessed: number; rule: string } | null;
}

type Evaluation = Extract<JournalEntry, { kind: 'evaluation' }>['data'];

function scoreOf(evaluation: Evaluation | undefined): Score | null {
  const { correct, samples } = evaluation?.metrics ?? {};
  return correct === undefined || samples === undefined ? null : { correct, samples };
}

function stateOf(facts: Pick<ExperimentFacts, 'stages' | 'attempts'>): string {
  const last = facts.attempts.at(-1);
  if (facts.stages.every(({ state }) => state === 'passed')) return 'finished';
  const open = facts.stages.find(({ state }) => state !== 'passed')!;
  if (!last) return 'not begun';
  if (last.status === 'never-closed') return `${open.stage}: running, or stopped`;
  return `${last.status}, before the end of ${open.stage}${last.reason ? `: ${last.reason}` : ''}`;
}

/** Reads it all from the journal's entries and what the overview says of the plan. */
export function experimentFacts(overview: ExperimentOverview): ExperimentFacts {
  const { entries, wallSeconds, selection } = overview;
  const { done, open, attempts, chargedSeconds } = experimentProgress(entries);
  const running = attempts.at(-1)?.status === 'never-closed';
  const stages = STAGES.map((stage): StageRow => {
    const end = done.get(stage);
    const begun = open === stage ? (running ? 'under way' : 'stopped') : 'not begun';
    return { stage, state: end ? 'passed' : begun, ended: end?.time ?? null, facts: end?.data.facts ?? {} };
  });
  const evaluations = entries.flatMap((entry) => (entry.kind === 'evaluation' ? [entry.data] : []));
  const of = (suite: string, step: number) =>
    evaluations.find((one) => one.step === step && one.name.startsWith(`${suite}-`));
  const dev = [0, ...overview.devSteps].map((step): DevRow => {
    const agent = of('dev-agent', step);
    const judged = selection?.points.find((point) => point.step === step);
    const kind = selection?.selected === null ? 'diagnostic' : 'selected';
    return {
      step,
      strict: scoreOf(agent),
      math: scoreOf(of('dev-math', step)),
      toolErrors: agent?.metrics['toolErrors'] ?? null,
      rank: judged?.rank ?? null,
      eligible: judged?.eligible ?? null,
      reasons: judged?.reasons ?? [],
      chosen: selection?.assessed === step ? kind : null,
      file: agent?.result.file ?? null,
    };
  });
  const preflight = done.get('preflight')?.data.facts ?? {};
  const device = Object.fromEntries(
    Object.entries(preflight).flatMap(([name, value]) =>
      name.startsWith('device.') ? [[name.slice('device.'.length), String(value)]] : [],
    ),
  );
  return {
    stages,
    state: stateOf({ stages, attempts }),
    attempts,
    budget: { wallSeconds, chargedSeconds },
    device,
    dev,
    selection: selection && { selected: selection.selected, assessed: selection.assessed, rule: selection.rule },
  };
}
