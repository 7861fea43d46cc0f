// The report of an experiment as data: `content`, which two equal experiments share byte for byte, and `record`, which
// holds what differs by nature: times, attempts, journal entries, who inspected the language.
// Not the reading (workers/experiment/report-node.ts) and not the rendering (report-html.ts). Pure.
// Invariant: release_eligible is the literal false; every figure comes from a journaled file or entry.
import type { Comparison } from '../evaluation/compare.ts';
import type { EvaluationFile, EvaluationTotals } from '../evaluation/results.ts';
import { effectiveEntries } from '../journal.ts';
import { DROPPED_TOKENS, isTimingMetric, type JournalEntry } from '../journal-events.ts';
import { canonicalBytes } from '../lib/canonical-json.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import type { Selection } from '../select.ts';
import { type AuditedMerge, mergedFolder } from './merged.ts';
import type { LoadedPlan } from './plan.ts';
import type { Attempt } from './progress.ts';
import { experimentProgress } from './progress.ts';
import { type CapFacts, capFacts, settingsOf } from './report-settings.ts';
import type { RetentionVerdict } from './retention.ts';
import { statements } from './statements.ts';
import type { Unit } from './units.ts';

export interface TokenCount {
  /** Tokens of the retained streams that the policy sampled. */
  sampled: number;
  /** Sampled and then discarded past the cap. */
  discarded: number;
  /** All tokens of the retained streams, prompts and observations included. */
  retained: number;
  /** Rollouts that ended at the cap. */
  capped: number;
}

export interface UnitReport {
  unit: Unit;
  totals: Omit<EvaluationTotals, 'seconds'>;
  toolErrorClasses: Record<string, number>;
  /** Of the episodes without times. */
  evidenceSha256: string;
}

/** A comparison without its times. */
export type TimelessComparison = Omit<Comparison, 'seconds'>;

export interface ReportContent {
  schema: 'shaderl.experiment-content/1';
  release_eligible: false;
  headline: string;
  canShow: string[];
  cannotShow: string[];
  planSha256: string;
  recipe: string;
  arm: string;
  /** Frozen numbers by name, in words. */
  settings: Record<string, string>;
  selectionRule: string;
  caps: CapFacts;
  identities: Record<string, string>;
  /** Second arm: which baseline suites are the first arm's bytes, and why the others are not. */
  baselines: { suite: string; reused: boolean; reason: string }[];
  device: Record<string, string>;
  qualification: { passed: boolean; steps: number; stopAfter: number; rollouts: number; flippedBitSeen: string } | null;
  training: {
    steps: { step: number; metrics: Record<string, number>; adapterSha256: string; evidenceSha256: string }[];
    audit: { rollouts: number; findings: number };
    tokens: TokenCount;
    checkpoints: number[];
  } | null;
  units: UnitReport[];
  selection: Selection | null;
  merge: {
    treeSha256: string;
    verdict: string;
    totals: AuditedMerge['totals'];
    tensors: number;
    largestLostTensor: string;
    /** The audit of every tensor. */
    file: string;
  } | null;
  final: TimelessComparison | null;
  retention: { comparison: TimelessComparison; verdict: RetentionVerdict } | null;
  recommendation: { recommended: string; step: number | null; reason: string } | null;
}

export interface ReportRecord {
  attempts: Attempt[];
  budget: { wallSeconds: number; chargedSeconds: number };
  stageSeconds: Record<string, number>;
  stepSeconds: { step: number; metrics: Record<string, number> }[];
  unitSeconds: Record<string, number>;
  /** Tokens that were drawn and are in no rollout: of a unit, and of the training's steps; what was not counted is left out. */
  droppedTokens: { units: Record<string, number>; training?: number };
  comparisonSeconds: Record<string, { baseline: number; assessed: number }>;
  inspection: { state: 'done' | 'open' | 'not made yet'; filled: number; of: number; by: string };
  /** What a figure rests on: file or stage -> line of the journal and its hash. */
  evidence: { what: string; journal: string; line: number; sha256: string }[];
  recovered: { from: string; to: string; reason: string }[];
}

export interface ExperimentReport {
  schema: 'shaderl.experiment-report/1';
  release_eligible: false;
  /** SHA-256 of the canonical JSON of `content`. */
  contentSha256: string;
  content: ReportContent;
  record: ReportRecord;
}

/** Everything that the report is made of, read and verified by the caller. */
export interface ReportSources {
  loaded: LoadedPlan;
  entries: readonly JournalEntry[];
  training: readonly JournalEntry[];
  trainingTokens: TokenCount;
  units: { unit: Unit; evaluation: EvaluationFile; evidenceSha256: string }[];
  qualification: { flippedBitSeen: string } | null;
  selection: Selection | null;
  merge: AuditedMerge | null;
  final: Comparison | null;
  retention: { comparison: Comparison; verdict: RetentionVerdict } | null;
  recommendation: { recommended: string; step: number | null; reason: string } | null;
  inspection: ReportRecord['inspection'];
  baselines: ReportContent['baselines'];
}

function timeless({ seconds: _seconds, ...rest }: Comparison): TimelessComparison {
  return rest;
}

function splitMetrics(metrics: Readonly<Record<string, number>>, timing: boolean): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => isTimingMetric(name) === timing));
}

function trainingContent({ training, trainingTokens }: ReportSources): ReportContent['training'] {
  const entries = effectiveEntries(training);
  const steps = entries.flatMap((entry) => (entry.kind === 'step' ? [entry.data] : []));
  if (steps.length === 0) return null;
  const audits = entries.flatMap((entry) => (entry.kind === 'audit' ? [entry.data] : []));
  return {
    steps: steps.map(({ step, metrics, adapterSha256, rollouts }) => ({
      step,
      metrics: splitMetrics(metrics, false),
      adapterSha256,
      evidenceSha256: rollouts.evidenceSha256,
    })),
    audit: {
      rollouts: audits.reduce((sum, { rollouts }) => sum + rollouts, 0),
      findings: audits.reduce((sum, { findings }) => sum + findings.length, 0),
    },
    tokens: trainingTokens,
    checkpoints: [],
  };
}

function unitReport({ unit, evaluation, evidenceSha256 }: ReportSources['units'][number]): UnitReport {
  const { seconds: _seconds, ...totals } = evaluation.totals;
  const classes: Record<string, number> = {};
  for (const { toolErrorClasses } of evaluation.items) {
    for (const [name, n] of Object.entries(toolErrorClasses ?? {})) classes[name] = (classes[name] ?? 0) + n;
  }
  return { unit, totals, toolErrorClasses: classes, evidenceSha256 };
}

function mergeContent({ merge, selection }: ReportSources): ReportContent['merge'] {
  if (!merge || !selection) return null;
  const { treeSha256, verdict, totals, tensors } = merge;
  const worst = Object.entries(tensors).reduce((a, b) => (b[1].largestLostUpdate > a[1].largestLostUpdate ? b : a));
  const file = `${mergedFolder(selection.assessed)}/merge-audit.json`;
  return { treeSha256, verdict, totals, tensors: Object.keys(tensors).length, largestLostTensor: worst[0], file };
}

function identities({ plan }: LoadedPlan): Record<string, string> {
  const { baseline, tokenizer, chatTemplateSha256, mathDev, mathTrain, mgsm } = plan.inputs;
  return {
    'baseline (tree SHA-256)': baseline.treeSha256,
    'baseline, as declared': baseline.declaredIdentity ?? 'none',
    'tokenizer (tree SHA-256)': tokenizer.treeSha256,
    'tokenizer, as declared': tokenizer.declaredIdentity ?? 'none',
    'chat template': chatTemplateSha256,
    'DEV math file': mathDev.sha256,
    'SFT training file': mathTrain.sha256,
    'MGSM file': mgsm.sha256,
    'TRAIN episodes': plan.data.train.sha256,
    'training configuration': plan.trainingSha256,
    ...(plan.service && {
      'environment service': `${plan.service.protocol}, ${plan.service.owned ? 'started by the run' : plan.service.url}`,
      'smoke proof of the service': plan.service.proof.sha256,
    }),
    ...(plan.matched && { 'first arm (plan)': `${plan.matched.planSha256} (${plan.matched.arm})` }),
  };
}

function stageFacts(entries: readonly JournalEntry[], stage: string): Record<string, string | number | boolean> {
  const entry = entries.findLast((one) => one.kind === 'stage-end' && one.data.stage === stage);
  return entry?.kind === 'stage-end' ? entry.data.facts : {};
}

function content(sources: ReportSources): ReportContent {
  const { loaded, entries, selection, recommendation } = sources;
  const { plan, sha256 } = loaded;
  const training = trainingContent(sources);
  const every = plan.recipe.training.checkpoints.every;
  const steps = training?.steps.length ?? 0;
  if (training) {
    training.checkpoints = training.steps.map(({ step }) => step).filter((s) => s % every === 0 || s === steps);
  }
  const qualified = stageFacts(entries, 'qualification');
  const final = sources.final && timeless(sources.final);
  const retention = sources.retention && {
    comparison: timeless(sources.retention.comparison),
    verdict: sources.retention.verdict,
  };
  const part: Omit<ReportContent, 'headline' | 'canShow' | 'cannotShow'> = {
    schema: 'shaderl.experiment-content/1',
    release_eligible: false,
    planSha256: sha256,
    recipe: plan.recipe.name,
    arm: plan.arm,
    settings: settingsOf(plan),
    selectionRule: plan.selectionRule,
    caps: capFacts(plan),
    identities: identities(loaded),
    baselines: sources.baselines,
    device: Object.fromEntries(
      Object.entries(stageFacts(entries, 'preflight')).map(([name, value]) => [
        name.replace('device.', ''),
        String(value),
      ]),
    ),
    qualification: sources.qualification && {
      passed: qualified['passed'] === true,
      steps: Number(qualified['steps'] ?? 0),
      stopAfter: Number(qualified['stopAfter'] ?? 0),
      rollouts: Number(qualified['rollouts'] ?? 0),
      flippedBitSeen: sources.qualification.flippedBitSeen,
    },
    training,
    units: sources.units.map(unitReport),
    selection,
    merge: mergeContent(sources),
    final,
    retention,
    recommendation,
  };
  return { ...part, ...statements(plan, part) };
}

function droppedTokens({ units, training }: ReportSources): ReportRecord['droppedTokens'] {
  const steps = effectiveEntries(training).flatMap((entry) =>
    entry.kind === 'step' ? [entry.data.metrics[DROPPED_TOKENS]] : [],
  );
  const counted = steps.flatMap((count) => (count === undefined ? [] : [count]));
  const all = steps.length > 0 && counted.length === steps.length;
  return {
    units: Object.fromEntries(
      units.flatMap(({ unit, evaluation: { droppedTokens: count } }) =>
        count === undefined ? [] : [[unit.name, count]],
      ),
    ),
    ...(all ? { training: counted.reduce((sum, count) => sum + count, 0) } : {}),
  };
}

function record(sources: ReportSources): ReportRecord {
  const { loaded, entries, training, units, final, retention, inspection } = sources;
  const { attempts, chargedSeconds } = experimentProgress(entries);
  const stageSeconds: Record<string, number> = {};
  let begun = 0;
  const evidence: ReportRecord['evidence'] = [];
  for (const entry of entries) {
    const at = { journal: 'journal.jsonl', line: entry.index + 1, sha256: entry.sha256 };
    if (entry.kind === 'stage-start') begun = Date.parse(entry.time);
    else if (entry.kind === 'stage-end') {
      stageSeconds[entry.data.stage] = (Date.parse(entry.time) - begun) / 1000;
      evidence.push({ what: `stage ${entry.data.stage}`, ...at });
    } else if (entry.kind === 'evaluation') evidence.push({ what: entry.data.name, ...at });
  }
  const steps = effectiveEntries(training).filter((entry) => entry.kind === 'step');
  for (const entry of steps) {
    const at = { journal: 'training/journal.jsonl', line: entry.index + 1, sha256: entry.sha256 };
    evidence.push({ what: `training step ${entry.data.step}`, ...at });
  }
  const seconds = (comparison: Comparison | undefined | null) =>
    comparison ? { baseline: comparison.seconds.a, assessed: comparison.seconds.b } : null;
  const timed = { final: seconds(final), retention: seconds(retention?.comparison) };
  return {
    attempts,
    budget: { wallSeconds: loaded.plan.recipe.budget.wallSeconds, chargedSeconds },
    stageSeconds,
    stepSeconds: steps.map(({ data }) => ({
      step: data.step,
      metrics: {
        ...splitMetrics(data.metrics, true),
        ...Object.fromEntries(Object.entries(data.seconds).map(([name, value]) => [`time/${name}`, value])),
      },
    })),
    unitSeconds: Object.fromEntries(units.map(({ unit, evaluation }) => [unit.name, evaluation.wallSeconds])),
    droppedTokens: droppedTokens(sources),
    comparisonSeconds: Object.fromEntries(
      Object.entries(timed).flatMap(([name, value]) => (value ? [[name, value]] : [])),
    ),
    inspection,
    evidence,
    recovered: [...entries, ...training].flatMap((entry) => (entry.kind === 'recovery' ? entry.data.moved : [])),
  };
}

/** Builds the report from what there is: a part that has not been made yet is null. */
export async function buildExperimentReport(sources: ReportSources): Promise<ExperimentReport> {
  const made = content(sources);
  return {
    schema: 'shaderl.experiment-report/1',
    release_eligible: false,
    contentSha256: await sha256HexAsync(canonicalBytes(made)),
    content: made,
    record: record(sources),
  };
}
