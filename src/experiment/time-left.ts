// How long an experiment will still take, from what it has taken so far. Pure: no clock, no files.
// Not a promise, and not the budget's account. Invariant: an estimate covers only work of a kind that was timed in this
// experiment, says of what its pace is, and names the stages that it leaves out.
import { type JournalEntry, STAGES, type Stage } from '../journal-events.ts';
import { QUALIFICATION_BRANCHES } from './qualify-resume.ts';
import type { Recipe } from './recipe.ts';
import { devUnits, finalUnits, retentionUnits, type SuiteName, type Unit } from './units.ts';

export interface TimeLeft {
  /** The open stage, or the next one. */
  stage: Stage;
  /** Of that stage; null where nothing like its work was timed. */
  stageSeconds: number | null;
  /** Of all stages that something is known of, this one among them; null where nothing is known of any. */
  runSeconds: number | null;
  /** What the figures rest on, a kind of work each. */
  basis: string[];
  /** Stages left that are in no figure. */
  without: Stage[];
}

export interface TimeLeftSources {
  recipe: Recipe;
  /** The experiment's journal. */
  entries: readonly JournalEntry[];
  /** Stages that passed, and the one that was begun by the last attempt. */
  done: ReadonlySet<Stage>;
  open: Stage | null;
  /** Seconds of each completed training step, in order. */
  trainingSteps: readonly number[];
  /** The same of the qualification's branches under way or passed. */
  qualificationSteps: readonly number[];
  /** Whether a process is at work: what it has in hand is then not lost. */
  live: boolean;
  /** A second arm that takes over the first one's baseline evaluations. */
  reusesBaseline: boolean;
}

/** Steps that a training's pace is taken over: the length of answers changes as a policy learns. */
const RECENT_STEPS = 10;

/** A pace, in seconds a piece of work, and what it was taken from. */
interface Pace {
  each: number;
  of: string;
}

interface Estimate {
  seconds: number;
  basis: string[];
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

function paceOf(times: readonly number[], of: (count: number) => string): Pace | null {
  // One step says little: it compiles the kernels.
  return times.length < 2 ? null : { each: sum(times) / times.length, of: of(times.length) };
}

function steps(left: number, name: string, pace: Pace | null): Estimate | null {
  if (!pace) return null;
  return { seconds: left * pace.each, basis: [`${left} ${name} at the pace of ${pace.of}`] };
}

const RELATED: Record<SuiteName, SuiteName> = {
  'dev-agent': 'final-agent',
  'final-agent': 'dev-agent',
  'dev-math': 'retention-math',
  'retention-math': 'dev-math',
};

function itemsOf(suite: SuiteName, { dev, final, retention }: Recipe): number {
  return {
    'dev-agent': dev.episodes,
    'dev-math': dev.mathItems,
    'final-agent': final.episodes,
    'retention-math': retention.items,
  }[suite];
}

/** Seconds a sample of a suite, from its own evaluations or those of its counterpart. */
function samplePace(suite: SuiteName, entries: readonly JournalEntry[]): Pace | null {
  for (const name of [suite, RELATED[suite]]) {
    const timed = entries.flatMap((entry) =>
      // What was taken over from another arm took no time here.
      entry.kind === 'evaluation' && entry.data.name.startsWith(`${name}-`) && entry.data.seconds > 0
        ? [entry.data]
        : [],
    );
    const samples = sum(timed.map(({ items }) => items));
    if (samples === 0) continue;
    const many = timed.length === 1 ? 'evaluation' : 'evaluations';
    return { each: sum(timed.map(({ seconds }) => seconds)) / samples, of: `${timed.length} ${name} ${many}` };
  }
  return null;
}

/** Seconds that the evaluation in hand has had, up to the last heartbeat. */
function inHand(entries: readonly JournalEntry[]): number {
  const last = entries.at(-1);
  const began = entries.findLast(({ kind }) => kind === 'evaluation' || kind === 'stage-start');
  if (last?.kind !== 'heartbeat' || !began) return 0;
  return Math.max(0, (Date.parse(last.time) - Date.parse(began.time)) / 1000);
}

function evaluations(units: readonly Unit[], isOpen: boolean, sources: TimeLeftSources): Estimate | null {
  const { entries, recipe, live, reusesBaseline } = sources;
  const journaled = new Set(entries.flatMap((entry) => (entry.kind === 'evaluation' ? [entry.data.name] : [])));
  const takenOver = (unit: Unit) => reusesBaseline && !isOpen && unit.step === 0;
  const left = units.filter((unit) => !journaled.has(unit.name) && !takenOver(unit));
  let seconds = 0;
  const basis: string[] = [];
  for (const suite of new Set(left.map((unit) => unit.suite))) {
    const pace = samplePace(suite, entries);
    if (!pace) return null;
    const own = left.filter((unit) => unit.suite === suite).length;
    seconds += own * itemsOf(suite, recipe) * pace.each;
    basis.push(`${own} ${suite} at the pace of ${pace.of}`);
  }
  const first = left[0];
  if (first && isOpen && live) {
    seconds -= Math.min(inHand(entries), itemsOf(first.suite, recipe) * (samplePace(first.suite, entries)?.each ?? 0));
  }
  return { seconds, basis };
}

function stageLeft(stage: Stage, sources: TimeLeftSources): Estimate | null {
  const { recipe, open, trainingSteps, qualificationSteps, live } = sources;
  const isOpen = open === stage;
  const qualified = paceOf(qualificationSteps, (count) => `${count} steps of the qualification`);
  const assessed = recipe.training.steps;
  switch (stage) {
    case 'qualification':
      // One that was interrupted is made again from its first step.
      return steps(
        QUALIFICATION_BRANCHES.length * recipe.qualification.steps - (isOpen && live ? qualificationSteps.length : 0),
        'steps of the qualification',
        qualified,
      );
    case 'training':
      return steps(
        recipe.training.steps - trainingSteps.length,
        'training steps',
        paceOf(trainingSteps.slice(-RECENT_STEPS), (count) => `the last ${count}`) ?? qualified,
      );
    case 'dev':
      return evaluations(devUnits(recipe), isOpen, sources);
    case 'final':
      return evaluations(finalUnits(recipe, assessedOf(sources) ?? assessed), isOpen, sources);
    case 'retention':
      return evaluations(retentionUnits(recipe, assessedOf(sources) ?? assessed), isOpen, sources);
    // What these take has nothing to do with what was timed: loading, merging, comparing, writing.
    case 'preflight':
    case 'selection':
    case 'report':
      return null;
  }
}

function assessedOf({ entries }: TimeLeftSources): number | null {
  const entry = entries.findLast((one) => one.kind === 'stage-end' && one.data.stage === 'selection');
  return entry?.kind === 'stage-end' ? Number(entry.data.facts['assessed']) : null;
}

/** What is left; null when all stages have passed. */
export function timeLeft(sources: TimeLeftSources): TimeLeft | null {
  const left = STAGES.filter((stage) => !sources.done.has(stage));
  const [stage] = left;
  if (stage === undefined) return null;
  const estimates = left.map((name) => ({ name, estimate: stageLeft(name, sources) }));
  const known = estimates.flatMap(({ estimate }) => (estimate ? [estimate] : []));
  return {
    stage,
    stageSeconds: estimates[0]!.estimate?.seconds ?? null,
    runSeconds: known.length === 0 ? null : sum(known.map(({ seconds }) => seconds)),
    basis: [...new Set(known.flatMap(({ basis }) => basis))],
    without: estimates.flatMap(({ name, estimate }) => (estimate ? [] : [name])),
  };
}
