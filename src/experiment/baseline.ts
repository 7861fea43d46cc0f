// The second arm's baseline: completed suites of the first arm, taken over whole, or run again whole.
// Not a comparison: no score is looked at. Invariant: a suite is either all of the first arm's bytes or all this arm's
// own; which, and why, stands in a sidecar that is written before the first of its evaluations.
import { z } from 'zod';
import { parseEvaluation } from '../evaluation/results.ts';
import { readJournal } from '../journal.ts';
import { fileReference, type JournalEntry, type Stage, sha256Text } from '../journal-events.ts';
import { CheckpointError, PlanError, ShaderlError } from '../lib/errors.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import type { Storage } from '../lib/storage.ts';
import { SELECTION_RULE } from '../select.ts';
import { EVIDENCE, jsonBytes, type StageContext } from './context.ts';
import type { ExperimentData } from './data.ts';
import { DEVICE_PREFIX } from './device-facts.ts';
import { answerProblem, suiteItems } from './evaluate-units.ts';
import { evidenceProblem, namedFiles, setAsidePaths } from './evidence.ts';
import { type LoadedPlan, PLAN_FILE, PLAN_HASH_FILE, parsePlan } from './plan.ts';
import { experimentProgress } from './progress.ts';
import { sharedDifference } from './shared-plan.ts';
import type { Unit } from './units.ts';

export const BASELINE_STAGES = ['dev', 'final', 'retention'] as const satisfies Stage[];
export type BaselineStage = (typeof BASELINE_STAGES)[number];

export const sidecarFile = (stage: BaselineStage) => `baseline/${stage}.json`;

const line = z.strictObject({ line: z.int().min(1), sha256: sha256Text });
const selectionIdentity = z.strictObject({
  planSha256: sha256Text,
  rule: z.string(),
  ruleSha256: sha256Text,
  /** Of selection.json; null before the selection. */
  selectionSha256: sha256Text.nullable(),
});

export const sidecarSchema = z.strictObject({
  schema: z.literal('shaderl.baseline-reuse/1'),
  suite: z.enum(BASELINE_STAGES),
  reused: z.boolean(),
  /** Why the suite is run again; empty if it is reused. */
  reason: z.string(),
  source: z
    .strictObject({
      /** The first arm's plan: what was to be evaluated. */
      specSha256: sha256Text,
      /** The line of its journal that closes the stage and lists its files with their hashes. */
      manifest: line,
      /** Its evaluations, as they are copied. */
      reports: z.array(
        z.strictObject({ name: z.string(), result: fileReference, rollouts: fileReference, journal: line }),
      ),
    })
    .nullable(),
  selection: z.strictObject({ source: selectionIdentity.nullable(), own: selectionIdentity }),
});
export type Sidecar = z.infer<typeof sidecarSchema>;

type Evaluation = Extract<JournalEntry, { kind: 'evaluation' }>;

const evaluationsOf = (entries: readonly JournalEntry[], units: readonly Unit[]): Evaluation[] => {
  const names = new Set(units.map(({ name }) => name));
  return entries.filter((entry): entry is Evaluation => entry.kind === 'evaluation' && names.has(entry.data.name));
};

async function selectionOf({ plan, sha256 }: LoadedPlan, entries: readonly JournalEntry[]) {
  const named = namedFiles(entries).find(({ file }) => file === EVIDENCE.selection);
  return {
    planSha256: sha256,
    rule: SELECTION_RULE,
    ruleSha256: await sha256HexAsync(new TextEncoder().encode(plan.selectionRule)),
    selectionSha256: named?.sha256 ?? null,
  };
}

/** Raised inside the search for a reusable suite: the reason to run it again. */
class Unfit extends Error {}

function deviceOf(entries: readonly JournalEntry[]): string {
  const facts = experimentProgress(entries).done.get('preflight')?.data.facts ?? {};
  return JSON.stringify(
    Object.entries(facts)
      .filter(([name]) => name.startsWith(DEVICE_PREFIX))
      .sort(),
  );
}

/** The first arm's suite, if it is complete and of this arm's identity. Throws Unfit, or what reading throws. */
async function findSuite(context: StageContext, stage: BaselineStage, units: readonly Unit[], data: ExperimentData) {
  const { plan, ports } = context;
  const first: Storage = ports.firstArm!;
  if (!(await first.exists(PLAN_FILE))) throw new Unfit(`there is no ${first.label}/${PLAN_FILE}`);
  const hashLine = await first.readText(PLAN_HASH_FILE);
  const loaded = await parsePlan(await first.read(PLAN_FILE), hashLine, `${first.label}/${PLAN_FILE}`);
  if (loaded.sha256 !== plan.matched!.planSha256) throw new Unfit(`its plan has SHA-256 ${loaded.sha256}`);
  const difference = sharedDifference(loaded.plan, plan);
  if (difference) throw new Unfit(`its plan differs in ${difference.place}`);
  const { entries } = await readJournal(first, 'journal.jsonl');
  const end = experimentProgress(entries).done.get(stage);
  if (!end) throw new Unfit(`it has not passed its stage ${stage}`);
  if (deviceOf(entries) !== deviceOf(ports.journal.entries)) throw new Unfit('it ran on another device');
  const found = evaluationsOf(entries, units);
  const reports: NonNullable<Sidecar['source']>['reports'] = [];
  for (const unit of units) {
    const own = found.filter(({ data: { name } }) => name === unit.name);
    const [entry] = own;
    if (own.length !== 1 || !entry?.data.rollouts) throw new Unfit(`it has ${own.length} evaluations ${unit.name}`);
    for (const named of namedFiles([entry])) {
      const problem = await evidenceProblem(first, named);
      if (problem !== null) throw new Unfit(problem);
    }
    const { result, rollouts } = entry.data;
    const evaluation = parseEvaluation(await first.readText(result.file), `${first.label}/${result.file}`);
    const episodes = (await first.readText(rollouts.file)).trimEnd().split('\n').length;
    const of = await suiteItems(unit.suite, data, plan.recipe);
    const problem = answerProblem(plan, unit, of, evaluation, episodes, null);
    if (problem) throw new Unfit(`${unit.name} has ${problem.what} ${problem.found}, not ${problem.wanted}`);
    reports.push({
      name: unit.name,
      result,
      rollouts: { file: rollouts.file, sha256: rollouts.sha256 },
      journal: { line: entry.index + 1, sha256: entry.sha256 },
    });
  }
  const manifest = { line: end.index + 1, sha256: end.sha256 };
  return {
    source: { specSha256: loaded.sha256, manifest, reports },
    selection: await selectionOf(loaded, entries),
  };
}

async function decide(
  context: StageContext,
  stage: BaselineStage,
  units: readonly Unit[],
  data: ExperimentData,
): Promise<Sidecar> {
  const own = await selectionOf(context, context.ports.journal.entries);
  const rerun = (reason: string): Sidecar => ({
    schema: 'shaderl.baseline-reuse/1',
    suite: stage,
    reused: false,
    reason,
    source: null,
    selection: { source: null, own },
  });
  if (context.plan.matched!.baseline === 'rerun') return rerun('the plan asks for it');
  try {
    const { source, selection } = await findSuite(context, stage, units, data);
    return { ...rerun(''), reused: true, source, selection: { source: selection, own } };
  } catch (error) {
    // What cannot be read or trusted there is a reason not to reuse it, and no fault of this arm.
    if (error instanceof Unfit || error instanceof ShaderlError) return rerun(`the first arm: ${error.message}`);
    throw error;
  }
}

async function readSidecar(storage: Storage, stage: BaselineStage): Promise<Sidecar | null> {
  const file = sidecarFile(stage);
  if (!(await storage.exists(file))) return null;
  return parseSidecar(await storage.readText(file), `${storage.label}/${file}`);
}

/** Throws CheckpointError `bad-sidecar` naming the field. */
export function parseSidecar(text: string, label: string): Sidecar {
  let found: string;
  try {
    const parsed = sidecarSchema.safeParse(JSON.parse(text));
    if (parsed.success) return parsed.data;
    const issue = parsed.error.issues[0]!;
    found = `${issue.path.join('.')}: ${issue.message}`;
  } catch (error) {
    found = (error as Error).message;
  }
  throw new CheckpointError('bad-sidecar', `reading ${label}: found ${found}; wanted a sidecar. Restore the file.`);
}

/** Copies what is not journaled yet. Throws CheckpointError `evidence-changed` if the first arm's bytes are others. */
async function copyReports(context: StageContext, sidecar: Sidecar, journaled: readonly Evaluation[]): Promise<void> {
  const { ports } = context;
  const first = ports.firstArm!;
  const { entries } = await readJournal(first, 'journal.jsonl');
  const done = new Set(journaled.map(({ data: { name } }) => name));
  for (const { name, result, rollouts, journal } of sidecar.source!.reports) {
    if (done.has(name)) continue;
    const entry = entries[journal.line - 1];
    if (entry?.kind !== 'evaluation' || entry.sha256 !== journal.sha256)
      throw changed(first, 'journal.jsonl', journal.sha256);
    for (const { file, sha256 } of [rollouts, result]) {
      const bytes = await first.read(file);
      if ((await sha256HexAsync(bytes)) !== sha256) throw changed(first, file, sha256);
      await ports.storage.write(file, bytes);
    }
    await ports.journal.append({ kind: 'evaluation', data: { ...entry.data, seconds: 0 } });
  }
}

function changed(first: Storage, file: string, sha256: string): CheckpointError {
  return new CheckpointError(
    'evidence-changed',
    `taking over ${first.label}/${file}: found other bytes; wanted SHA-256 ${sha256}, as the sidecar says. Restore the ` +
      "first arm's folder: a suite that was begun from it is not run again in part.",
  );
}

/**
 * Takes over the baseline of a stage's suite from the first arm, or settles that this arm runs it. `units` are the
 * stage's. Gives the files that the stage leaves behind for it. Throws PlanError and CheckpointError.
 */
export async function adoptBaseline(
  context: StageContext,
  stage: BaselineStage,
  units: readonly Unit[],
  data: ExperimentData,
): Promise<string[]> {
  const { plan, ports } = context;
  if (!plan.matched) return [];
  const { storage, journal } = ports;
  const baseline = units.filter(({ step }) => step === 0);
  const file = sidecarFile(stage);
  const journaled = evaluationsOf(journal.entries, baseline);
  let sidecar = await readSidecar(storage, stage);
  if (journaled.length === 0) {
    await setAsidePaths(storage, journal, [file], 'a decision on the baseline that nothing was made of');
    sidecar = await decide(context, stage, baseline, data);
    await storage.write(file, jsonBytes(sidecar));
  } else if (!sidecar) {
    throw new PlanError(
      'no-sidecar',
      `going on with the baseline of stage ${stage}: found no ${storage.label}/${file}; wanted the one that was written ` +
        'before the first of its evaluations. Restore it.',
    );
  }
  const { reused, reason } = sidecar!;
  ports.progress.onNote?.(
    reused ? `baseline of ${stage}: reused from the first arm` : `baseline of ${stage}: ${reason}`,
  );
  if (reused) await copyReports(context, sidecar!, journaled);
  return [file];
}

/** Named evaluations that must be the sidecar's bytes and are not, as findings. */
export function sidecarFindings(sidecar: Sidecar, entries: readonly JournalEntry[]): string[] {
  if (!sidecar.source) return [];
  return sidecar.source.reports.flatMap(({ name, result, rollouts }) => {
    const entry = entries.find((one) => one.kind === 'evaluation' && one.data.name === name);
    const found = entry?.kind === 'evaluation' ? [entry.data.result.sha256, entry.data.rollouts?.sha256] : [];
    if (found[0] === result.sha256 && found[1] === rollouts.sha256) return [];
    return [`${sidecarFile(sidecar.suite)}: found ${name} with SHA-256 ${found[0] ?? 'none'}; wanted ${result.sha256}`];
  });
}
