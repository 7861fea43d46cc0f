// The stages of an experiment, each as what it does and what it leaves behind. The order is the driver's.
// Not the driver. Invariant: a stage is journaled as passed only after all its files are on disk; what an earlier
// attempt left of it unjournaled is moved to recovery/ first and made again.

import { checkpointFolder } from '../checkpoint.ts';
import { effectiveEntries, journalDigestWithoutTimings, readJournal } from '../journal.ts';
import type { Stage } from '../journal-events.ts';
import { AuditError, EnvError, EvaluationError, PlanError } from '../lib/errors.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import { SELECTION_RULE, selectCandidate } from '../select.ts';
import { assess, compareSuite } from './assessment.ts';
import { adoptBaseline } from './baseline.ts';
import { EVIDENCE, jsonBytes, type StageContext, type StageResult, stopHere, utf8 } from './context.ts';
import { DATA_FILES, type DataName, dataBytes, type ExperimentData } from './data.ts';
import { deviceFacts } from './device-facts.ts';
import { devPoint, evaluateUnits } from './evaluate-units.ts';
import { checkTraining, sealedStep, setAsidePaths, unnamed } from './evidence.ts';
import { inspectionFile } from './inspection.ts';
import { mergedFolder } from './merged.ts';
import { firstDifference, placeText } from './place.ts';
import { TRAINING_FOLDER } from './plan.ts';
import { qualifyResume } from './qualify-resume.ts';
import { recommendation, retentionVerdict } from './retention.ts';
import { devUnits, finalUnits, retentionUnits, unitFile, unitRollouts } from './units.ts';

const stages: Record<Stage, (context: StageContext) => Promise<StageResult>> = {
  preflight,
  qualification: qualifyResume,
  training,
  dev,
  selection,
  final,
  retention,
  report: async ({ ports }) => ({ files: [], facts: { contentSha256: await ports.report() } }),
};

/** Runs one stage and journals it. */
export async function runStage(stage: Stage, context: StageContext): Promise<void> {
  const { ports, attempt } = context;
  stopHere(context);
  ports.progress.onStage?.(stage, 'begins');
  await ports.journal.append({ kind: 'stage-start', data: { attempt, stage } });
  const { files, facts } = await stages[stage](context);
  const named: { file: string; sha256: string }[] = [];
  for (const file of files) named.push({ file, sha256: await sha256HexAsync(await ports.storage.read(file)) });
  await ports.journal.append({ kind: 'stage-end', data: { attempt, stage, files: named, facts } });
  ports.progress.onStage?.(stage, 'passed');
}

/** The data and the device are what the plan says; the kernels are qualified. */
async function preflight({ plan, ports, device }: StageContext): Promise<StageResult> {
  const { storage } = ports;
  const data = await ports.data();
  for (const [name, path] of Object.entries(DATA_FILES)) {
    const made = dataBytes(data[name as DataName]);
    const found = await sha256HexAsync(made);
    const frozen = plan.data[name as DataName].sha256;
    if (found === frozen) continue;
    const place = firstDifference(await storage.read(path), made);
    throw new PlanError(
      'data-changed',
      `generating ${storage.label}/${path} again: found SHA-256 ${found}; the plan froze ${frozen}` +
        `${place ? `; ${placeText(place)}` : ''}. The generator is another one: prepare a new plan.`,
    );
  }
  await storage.write(EVIDENCE.device, utf8(device!.qualification));
  return { files: [EVIDENCE.device], facts: deviceFacts(device!.facts) };
}

/** Training under the plan's configuration, from the newest sealed step on. */
async function training(context: StageContext): Promise<StageResult> {
  const { ports, run, plan } = context;
  const folder = ports.storageAt(TRAINING_FOLDER);
  const { unsealed } = await checkTraining(folder, run);
  const paths = unsealed.map((file) => `${TRAINING_FOLDER}/${file}`);
  await setAsidePaths(ports.storage, ports.journal, paths, 'rollouts of a step that was not sealed');
  const stop = () => context.stopReason() !== null;
  let status: 'finished' | 'interrupted';
  try {
    status = await ports.train(run, { resume: await folder.exists('journal.jsonl'), stop });
  } catch (error) {
    // A scheduler that ends a job signals the service too: its loss is then part of the stop.
    if (error instanceof EnvError) stopHere(context);
    throw error;
  }
  if (status === 'interrupted') stopHere(context);
  const { entries } = await readJournal(folder, 'journal.jsonl');
  const steps = effectiveEntries(entries).filter((entry) => entry.kind === 'step');
  const { steps: wanted, checkpoints } = plan.recipe.training;
  if (steps.length !== wanted) {
    throw new AuditError(
      'missing-steps',
      `closing the training in ${folder.label}: found ${steps.length} steps in its journal; wanted ${wanted}. ` +
        'Run again with --resume.',
    );
  }
  const files = ['journal.jsonl', 'run-config.json'];
  let adapterSha256 = '';
  for (let step = 1; step <= wanted; step++) {
    if (step % checkpoints.every !== 0 && step !== wanted) continue;
    ({ adapterSha256 } = await sealedStep(folder, entries, step));
    files.push(`${checkpointFolder(step)}/seal.json`);
  }
  return {
    files: files.map((file) => `${TRAINING_FOLDER}/${file}`),
    facts: { steps: wanted, adapterSha256, journalDigest: await journalDigestWithoutTimings(entries) },
  };
}

/** Takes away what an earlier attempt left in a folder without journaling it. */
async function clearUnnamed({ ports }: StageContext, folder: string): Promise<void> {
  const paths = await unnamed(ports.storage, ports.journal.entries, folder);
  await setAsidePaths(ports.storage, ports.journal, paths, 'left unjournaled by an interrupted attempt');
}

async function dev(context: StageContext): Promise<StageResult> {
  await clearUnnamed(context, 'evaluations');
  const { recipe } = context.plan;
  const units = devUnits(recipe);
  const data = await context.ports.data();
  const taken = await adoptBaseline(context, 'dev', units, data);
  await evaluateUnits(context, units, data, null);
  const facts: StageResult['facts'] = {};
  for (const step of [0, ...recipe.dev.steps]) {
    const { strict, mathCorrect, toolErrors } = await devPoint(context.ports.storage, recipe, step);
    Object.assign(facts, {
      [`step-${step}.strict`]: strict,
      [`step-${step}.mathCorrect`]: mathCorrect,
      [`step-${step}.toolErrors`]: toolErrors,
    });
  }
  return { files: [...taken, ...units.flatMap((unit) => [unitFile(unit), unitRollouts(unit)])], facts };
}

/** Applies the rule to DEV alone; then the release evidence of what it chose: the merge and its audit. */
async function selection(context: StageContext): Promise<StageResult> {
  const { plan, ports } = context;
  const { storage } = ports;
  const points = [];
  for (const step of [0, ...plan.recipe.dev.steps]) points.push(await devPoint(storage, plan.recipe, step));
  const [baseline, ...others] = points;
  const chosen = selectCandidate(baseline!, others);
  await setAsidePaths(storage, ports.journal, ['merged'], 'a merge that was never journaled');
  const folder = ports.storageAt(TRAINING_FOLDER);
  const { entries } = await readJournal(folder, 'journal.jsonl');
  const sealed = await sealedStep(folder, entries, chosen.assessed);
  const merged = mergedFolder(chosen.assessed);
  const audit = await ports.merge(sealed, merged);
  await storage.write(
    EVIDENCE.selection,
    jsonBytes({ schema: 'shaderl.selection/1', planSha256: context.sha256, ...chosen }),
  );
  return {
    files: [EVIDENCE.selection, `${merged}/merge-audit.json`],
    facts: {
      rule: SELECTION_RULE,
      selected: chosen.selected ?? 'none',
      assessed: chosen.assessed,
      assessment: chosen.assessment,
      adapterSha256: sealed.adapterSha256,
      mergedTreeSha256: audit.treeSha256,
      mergeVerdict: audit.verdict,
      mergeChangedShare: audit.totals.changedShare,
      mergeLargestLostUpdate: audit.totals.largestLostUpdate,
    },
  };
}

/** Step and kind of the assessment, as the selection stage journaled it. */
function assessedStep({ ports }: StageContext): { step: number; assessment: 'candidate' | 'diagnostic' } {
  const entry = ports.journal.entries.findLast((one) => one.kind === 'stage-end' && one.data.stage === 'selection');
  const facts = entry?.kind === 'stage-end' ? entry.data.facts : {};
  const { assessed, assessment } = facts;
  if (typeof assessed === 'number' && (assessment === 'candidate' || assessment === 'diagnostic')) {
    return { step: assessed, assessment };
  }
  throw new EvaluationError(
    'no-selection',
    `assessing ${ports.storage.label}: found no selection in its journal; wanted one. Run again with --resume.`,
  );
}

async function final(context: StageContext): Promise<StageResult> {
  await clearUnnamed(context, 'evaluations');
  const { recipe } = context.plan;
  const { step } = assessedStep(context);
  const units = finalUnits(recipe, step);
  const data = await context.ports.data();
  const taken = await adoptBaseline(context, 'final', units, data);
  await evaluateUnits(context, units, data, step);
  const comparison = await compareSuite(context, units, step);
  await context.ports.storage.write(EVIDENCE.final, jsonBytes(comparison));
  const files = [EVIDENCE.final, ...taken, ...units.flatMap((unit) => [unitFile(unit), unitRollouts(unit)])];
  return { files, facts: { step, ...assess(comparison) } };
}

async function retention(context: StageContext): Promise<StageResult> {
  await clearUnnamed(context, 'evaluations');
  const { plan, ports } = context;
  const { storage } = ports;
  const { step, assessment } = assessedStep(context);
  const data: ExperimentData = await ports.data();
  const units = retentionUnits(plan.recipe, step);
  const taken = await adoptBaseline(context, 'retention', units, data);
  await evaluateUnits(context, units, data, step);
  const comparison = await compareSuite(context, units, step);
  const verdict = retentionVerdict(comparison);
  const { recommended, step: recommendedStep, reason } = recommendation(assessment, step, verdict);
  await storage.write(EVIDENCE.retention, jsonBytes(comparison));
  const answer = {
    schema: 'shaderl.recommendation/1',
    recommended,
    step: recommendedStep,
    reason,
    retention: verdict,
    release_eligible: false,
  };
  await storage.write(EVIDENCE.recommendation, jsonBytes(answer));
  // Filled in by hand later: never replaced, and no evidence that a later attempt verifies.
  if (!(await storage.exists(EVIDENCE.inspection))) {
    await storage.write(EVIDENCE.inspection, jsonBytes(await inspectionFile(storage, plan, step)));
  }
  const files = [
    EVIDENCE.retention,
    EVIDENCE.recommendation,
    ...taken,
    ...units.flatMap((unit) => [unitFile(unit), unitRollouts(unit)]),
  ];
  return { files, facts: { step, retentionMet: verdict.met, recommended, ...assess(comparison) } };
}
