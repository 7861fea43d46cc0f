// Reads an experiment's folder, builds its report, and writes report.json and report.html.
// Not the figures (src/experiment/report.ts). Invariant: every file that goes in is one that the journal names, with
// the
// hash that it names; what is not there yet is left out and said to be missing.
import { join, resolve } from 'node:path';
import { parseEvaluation } from '../../src/evaluation/results.ts';
import { compareSuite } from '../../src/experiment/assessment.ts';
import { BASELINE_STAGES, parseSidecar, sidecarFile } from '../../src/experiment/baseline.ts';
import { EVIDENCE } from '../../src/experiment/context.ts';
import { requireEvidence } from '../../src/experiment/evidence.ts';
import { loadPlan } from '../../src/experiment/freeze-node.ts';
import { inspectionState, parseInspection } from '../../src/experiment/inspection.ts';
import { mergedFolder, parseMergeAudit } from '../../src/experiment/merged.ts';
import { PLAN_FILE, TRAINING_FOLDER } from '../../src/experiment/plan.ts';
import { experimentProgress } from '../../src/experiment/progress.ts';
import {
  buildExperimentReport,
  type ExperimentReport,
  type ReportSources,
  type TokenCount,
} from '../../src/experiment/report.ts';
import { renderExperimentHtml } from '../../src/experiment/report-html.ts';
import { type RetentionVerdict, retentionVerdict } from '../../src/experiment/retention.ts';
import { devUnits, finalUnits, retentionUnits } from '../../src/experiment/units.ts';
import type { RebuiltReport } from '../../src/experiment/verify-node.ts';
import { effectiveEntries, readJournal } from '../../src/journal.ts';
import type { JournalEntry } from '../../src/journal-events.ts';
import type { Storage } from '../../src/lib/storage.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import type { Episode } from '../../src/rollout/episode.ts';
import type { Selection } from '../../src/select.ts';

/** Tokens of the training's rollouts, of the steps that count; a batch that several steps learn from was drawn once. */
async function trainingTokens(training: Storage, entries: readonly JournalEntry[]): Promise<TokenCount> {
  const count: TokenCount = { sampled: 0, discarded: 0, retained: 0, capped: 0 };
  const files = effectiveEntries(entries).flatMap((entry) => (entry.kind === 'step' ? [entry.data.rollouts.file] : []));
  for (const file of new Set(files)) {
    for (const line of (await training.readText(file)).trimEnd().split('\n')) {
      const { mask, discardedTokens, capped } = JSON.parse(line) as Pick<
        Episode,
        'mask' | 'discardedTokens' | 'capped'
      >;
      count.sampled += mask.reduce((sum: number, bit) => sum + bit, 0);
      count.retained += mask.length;
      count.discarded += discardedTokens;
      if (capped) count.capped += 1;
    }
  }
  return count;
}

async function readUnits(
  storage: Storage,
  entries: readonly JournalEntry[],
  known: Map<string, ReportSources['units'][number]['unit']>,
) {
  const units: ReportSources['units'] = [];
  for (const entry of entries) {
    if (entry.kind !== 'evaluation') continue;
    const unit = known.get(entry.data.name);
    if (!unit) continue;
    const { file } = entry.data.result;
    const evaluation = parseEvaluation(await storage.readText(file), `${storage.label}/${file}`);
    units.push({ unit, evaluation, evidenceSha256: entry.data.rollouts?.evidenceSha256 ?? '' });
  }
  return units;
}

/** Builds the report of an experiment's folder. Reads only. Throws PlanError, CheckpointError, EvaluationError. */
export async function experimentReport(dir: string): Promise<ExperimentReport> {
  const folder = resolve(dir);
  const loaded = await loadPlan(join(folder, PLAN_FILE), folder);
  const { plan } = loaded;
  const storage = createNodeStorage(folder);
  const { entries } = await readJournal(storage, 'journal.jsonl');
  await requireEvidence(storage, entries);
  const trainingStorage = createNodeStorage(join(folder, TRAINING_FOLDER));
  const { entries: training } = await readJournal(trainingStorage, 'journal.jsonl');
  const { done } = experimentProgress(entries);
  const json = async <T>(file: string) => JSON.parse(await storage.readText(file)) as T;
  const selection = done.has('selection') ? await json<Selection & Record<string, unknown>>(EVIDENCE.selection) : null;
  const assessed = selection?.assessed ?? plan.recipe.training.steps;
  const all = [
    ...devUnits(plan.recipe),
    ...finalUnits(plan.recipe, assessed),
    ...retentionUnits(plan.recipe, assessed),
  ];
  const context = { plan, ports: { storage } };
  const final = done.has('final') ? await compareSuite(context, finalUnits(plan.recipe, assessed), assessed) : null;
  const kept = done.has('retention')
    ? await compareSuite(context, retentionUnits(plan.recipe, assessed), assessed)
    : null;
  const merge = done.has('selection')
    ? parseMergeAudit(
        await storage.readText(`${mergedFolder(assessed)}/merge-audit.json`),
        `${folder}/${mergedFolder(assessed)}`,
      )
    : null;
  const inspection = (await storage.exists(EVIDENCE.inspection))
    ? inspectionState(parseInspection(await storage.readText(EVIDENCE.inspection), `${folder}/${EVIDENCE.inspection}`))
    : { state: 'not made yet' as const, filled: 0, of: 0, by: '' };
  let qualification: ReportSources['qualification'] = null;
  if (done.has('qualification')) {
    const { flippedBitSeen } = await json<{ flippedBitSeen: { file: string; tensor: string; index: number } }>(
      EVIDENCE.resume,
    );
    const { file, tensor, index } = flippedBitSeen;
    qualification = { flippedBitSeen: `${file}, ${tensor}, index ${index}` };
  }
  const baselines: ReportSources['baselines'] = [];
  for (const stage of BASELINE_STAGES) {
    if (!plan.matched || !done.has(stage)) continue;
    const file = sidecarFile(stage);
    const { suite, reused, reason } = parseSidecar(await storage.readText(file), `${folder}/${file}`);
    baselines.push({ suite, reused, reason });
  }
  let recommendation: ReportSources['recommendation'] = null;
  let verdict: RetentionVerdict | null = null;
  if (kept) {
    verdict = retentionVerdict(kept);
    const { recommended, step, reason } = await json<{ recommended: string; step: number | null; reason: string }>(
      EVIDENCE.recommendation,
    );
    recommendation = { recommended, step, reason };
  }
  return buildExperimentReport({
    loaded,
    entries,
    training,
    trainingTokens: await trainingTokens(trainingStorage, training),
    units: await readUnits(storage, entries, new Map(all.map((unit) => [unit.name, unit]))),
    qualification,
    selection: selection && plainSelection(selection),
    merge,
    final,
    retention: kept && verdict ? { comparison: kept, verdict } : null,
    recommendation,
    inspection,
    baselines,
  });
}

function plainSelection({ rule, baseline, points, selected, assessed, assessment }: Selection): Selection {
  return { rule, baseline, points, selected, assessed, assessment };
}

/** The report of an experiment's folder and the files that it is written as. Reads only. */
export async function renderedReport(dir: string): Promise<{ report: ExperimentReport } & RebuiltReport> {
  const report = await experimentReport(dir);
  const encode = (text: string) => new TextEncoder().encode(text);
  const files = {
    'report.json': encode(`${JSON.stringify(report, null, 2)}\n`),
    'report.html': encode(renderExperimentHtml(report)),
  };
  return { report, contentSha256: report.contentSha256, files };
}

/** Writes report.json and report.html into the experiment's folder. */
export async function reportExperiment(dir: string): Promise<{ report: ExperimentReport; json: string; html: string }> {
  const { report, files } = await renderedReport(dir);
  const storage = createNodeStorage(dir);
  for (const [file, bytes] of Object.entries(files)) await storage.write(file, bytes);
  return { report, json: join(dir, 'report.json'), html: join(dir, 'report.html') };
}
