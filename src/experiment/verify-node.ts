// Verifies a finished or stopped experiment without a device: chains, hashes, seals, rules and figures.
// Not a replay of the training. Invariant: every check reads the files again; a finding names the file, what was found
// and what was wanted; it writes nothing.
import { join, resolve } from 'node:path';
import { auditRun } from '../audit-node.ts';
import { checkpointFolder, verifyCheckpoint } from '../checkpoint.ts';
import { parseEvaluation } from '../evaluation/results.ts';
import { effectiveEntries, readJournal } from '../journal.ts';
import { type JournalEntry, STAGES } from '../journal-events.ts';
import { canonicalJson } from '../lib/canonical-json.ts';
import { ShaderlError } from '../lib/errors.ts';
import type { Storage } from '../lib/storage.ts';
import { createNodeStorage } from '../lib/storage-node.ts';
import { folderSource } from '../model/file-source-node.ts';
import { hashEntries, type TreeEntry, treeEntries } from '../model/tree-hash.ts';
import { newSha256 } from '../model/tree-hash-node.ts';
import { selectCandidate } from '../select.ts';
import { BASELINE_STAGES, parseSidecar, sidecarFile, sidecarFindings } from './baseline.ts';
import { compareBranches, differenceText } from './compare-branches.ts';
import { EVIDENCE } from './context.ts';
import { devPoint } from './evaluate-units.ts';
import { evidenceProblem, namedFiles, sealedStep } from './evidence.ts';
import { loadPlan, planDifferences } from './freeze-node.ts';
import { inspectionProblem } from './inspection.ts';
import { readLock } from './lock-node.ts';
import { mergedFolder, parseMergeAudit } from './merged.ts';
import { firstDifference, placeText } from './place.ts';
import { PLAN_FILE, type Plan, TRAINING_FOLDER } from './plan.ts';
import { changeText } from './plan-changes.ts';
import { ROLLOUT_SETS } from './positions.ts';
import { experimentProgress } from './progress.ts';
import { QUALIFICATION_BRANCHES, readBranch } from './qualify-resume.ts';
import { runFolderFindings, tornFinding } from './run-folder.ts';

export interface Check {
  name: string;
  passed: boolean;
  /** What was checked, or the findings. */
  detail: string[];
}

export interface Verification {
  passed: boolean;
  planSha256: string;
  checks: Check[];
}

interface Subject {
  folder: string;
  plan: Plan;
  planSha256: string;
  storage: Storage;
  training: Storage;
  entries: JournalEntry[];
  /** The report, built again by the caller from the same files; null if that is not wanted. */
  rebuild: ((folder: string) => Promise<RebuiltReport>) | null;
}

export interface RebuiltReport {
  contentSha256: string;
  /** report.json and report.html as they are written. */
  files: Record<string, Uint8Array>;
}

/** What a check found wrong; an empty list passes. */
type Finder = (subject: Subject) => Promise<string[]>;

const checks: [string, Finder][] = [
  ['the program, the inputs and the data are as the plan froze them', unchangedPlan],
  ['attempts and stages follow the protocol', protocolOrder],
  ['the journal ends with a whole line', wholeJournal],
  ['every file that the journal names has the hash that it names', namedEvidence],
  ['the resume qualification holds, compared again', requalified],
  ['every sealed checkpoint verifies and holds the journaled adapter, and rollouts have their hashes', checkpoints],
  ['every training rollout passes the strict audit', audited],
  ['every evaluation is of the journaled policy and family', evaluations],
  ['every evaluation is within its cap and the positions of the model', caps],
  ["a baseline that was taken over is the first arm's, byte for byte", adopted],
  ['the selection rule gives the recorded selection', selected],
  ['the merged model is the audited one', merged],
  ['the replies of the language inspection are those of the evaluations', inspected],
  ['the report follows from the files, byte for byte', reported],
];

async function unchangedPlan({ plan, folder }: Subject): Promise<string[]> {
  const differences = await planDifferences(plan, folder);
  return differences.map((difference) => `${difference.file}: ${changeText(difference)}`);
}

async function protocolOrder({ entries, planSha256 }: Subject): Promise<string[]> {
  const found: string[] = [];
  const start = entries[0];
  if (start?.kind !== 'experiment-start' || start.data.planSha256 !== planSha256) {
    const what = start?.kind === 'experiment-start' ? `plan ${start.data.planSha256}` : (start?.kind ?? 'nothing');
    found.push(`journal.jsonl line 1: found ${what}; wanted experiment-start of plan ${planSha256}`);
  }
  let passed = 0;
  let attempt = 0;
  for (const entry of entries) {
    const line = `journal.jsonl line ${entry.index + 1}`;
    if (entry.kind === 'attempt-start') {
      if (entry.data.attempt !== attempt + 1)
        found.push(`${line}: found attempt ${entry.data.attempt}; wanted ${attempt + 1}`);
      attempt = entry.data.attempt;
      const { chargedSeconds } = experimentProgress(entries.slice(0, entry.index));
      if (entry.data.chargedSeconds !== chargedSeconds) {
        found.push(`${line}: found ${entry.data.chargedSeconds} s charged; wanted ${chargedSeconds}`);
      }
    }
    if (entry.kind === 'stage-end') {
      const wanted = STAGES[passed];
      if (entry.data.stage !== wanted)
        found.push(`${line}: found the end of ${entry.data.stage}; wanted that of ${wanted}`);
      passed += 1;
    }
  }
  return found;
}

/** A live writer may be in the middle of a line. */
async function wholeJournal({ storage, folder }: Subject): Promise<string[]> {
  const { state } = readLock(folder);
  if (state === 'held' || state === 'other-host') return [];
  return tornFinding(await readJournal(storage, 'journal.jsonl'), `${storage.label}/journal.jsonl`);
}

async function namedEvidence({ storage, entries }: Subject): Promise<string[]> {
  const found: string[] = [];
  for (const named of namedFiles(entries)) {
    const problem = await evidenceProblem(storage, named);
    if (problem !== null) found.push(problem);
  }
  return found;
}

const hasPassed = ({ entries }: Subject, stage: string) =>
  entries.some((entry) => entry.kind === 'stage-end' && entry.data.stage === stage);

async function requalified(subject: Subject): Promise<string[]> {
  if (!hasPassed(subject, 'qualification')) return [];
  const { storage, folder, plan, planSha256 } = subject;
  const record = JSON.parse(await storage.readText(EVIDENCE.resume)) as { folder: string; planSha256: string };
  if (record.planSha256 !== planSha256) {
    return [`${EVIDENCE.resume}: found a qualification of plan ${record.planSha256}; wanted ${planSha256}`];
  }
  const found: string[] = [];
  const at = (name: string) => createNodeStorage(join(folder, record.folder, name));
  for (const name of QUALIFICATION_BRANCHES) found.push(...(await runFolderFindings(at(name), { open: false })));
  if (found.length > 0) return found;
  const branch = (name: string) => readBranch(at(name), name, plan.recipe.qualification.steps);
  const whole = await branch('uninterrupted');
  for (const name of ['repeat', 'resumed']) {
    for (const difference of await compareBranches(whole, await branch(name))) {
      found.push(`${record.folder}: ${differenceText(difference, ['uninterrupted', name])}`);
    }
  }
  return found;
}

async function checkpoints(subject: Subject): Promise<string[]> {
  const { training, plan } = subject;
  const passed = hasPassed(subject, 'training');
  const found = await runFolderFindings(training, { open: !passed });
  if (!passed || found.length > 0) return found;
  const { entries } = await readJournal(training, 'journal.jsonl');
  const { steps, checkpoints: sealed } = plan.recipe.training;
  for (let step = 1; step <= steps; step++) {
    if (step % sealed.every !== 0 && step !== steps) continue;
    await sealedStep(training, entries, step);
    const { state } = await verifyCheckpoint(training, checkpointFolder(step));
    if (state.planSha256 !== plan.trainingSha256) {
      return [`${checkpointFolder(step)}: found configuration ${state.planSha256}; wanted ${plan.trainingSha256}`];
    }
  }
  return [];
}

async function audited(subject: Subject): Promise<string[]> {
  if (!hasPassed(subject, 'training')) return [];
  return (await auditRun(join(subject.folder, TRAINING_FOLDER))).findings;
}

async function evaluations({ storage, training, entries, plan }: Subject): Promise<string[]> {
  const found: string[] = [];
  const steps = effectiveEntries((await readJournal(training, 'journal.jsonl')).entries);
  for (const entry of entries) {
    if (entry.kind !== 'evaluation') continue;
    const { name, step, policy, result } = entry.data;
    const { family, items, adapterSha256 } = parseEvaluation(await storage.readText(result.file), result.file);
    const trained = steps.find((one) => one.kind === 'step' && one.data.step === step);
    const wanted = step === 0 ? 'base' : trained?.kind === 'step' ? trained.data.adapterSha256 : 'a trained step';
    if (policy !== wanted) found.push(`${name}: found policy ${policy}; wanted ${wanted}`);
    // A merged model carries its adapter inside: the file then names none.
    if (adapterSha256 !== null && adapterSha256 !== policy)
      found.push(`${result.file}: found adapter ${adapterSha256}; wanted ${policy}`);
    if (family !== plan.kernels.family)
      found.push(`${result.file}: found family ${family}; wanted ${plan.kernels.family}`);
    if (items.some(({ outcome }) => outcome === 'infrastructure'))
      found.push(`${result.file}: found samples lost to a service; wanted none`);
  }
  return found;
}

async function caps({ storage, entries, plan }: Subject): Promise<string[]> {
  const found: string[] = [];
  const { sets, model } = plan.positions;
  for (const entry of entries) {
    if (entry.kind !== 'evaluation' || !entry.data.rollouts) continue;
    const { name, result, rollouts } = entry.data;
    const set = ROLLOUT_SETS.find((one) => name.startsWith(`${one}-`));
    if (!set) continue;
    const { completionCap: cap } = sets[set];
    const { maxTokens } = parseEvaluation(await storage.readText(result.file), result.file).sampling;
    if (maxTokens !== cap) found.push(`${result.file}: found a cap of ${maxTokens} tokens; wanted ${cap}`);
    for (const [index, line] of (await storage.readText(rollouts.file)).trimEnd().split('\n').entries()) {
      const { ids, promptLength } = JSON.parse(line) as { ids: number[]; promptLength: number };
      const wanted = Math.min(model, promptLength + cap);
      if (ids.length <= wanted) continue;
      found.push(`${rollouts.file} line ${index + 1}: found ${ids.length} tokens; wanted at most ${wanted}`);
    }
  }
  return found;
}

/** The sidecars against this journal, and against the first arm's folder where it is still there. */
async function adopted({ plan, entries, storage }: Subject): Promise<string[]> {
  const { matched } = plan;
  if (!matched) return [];
  const found: string[] = [];
  const first = createNodeStorage(matched.folder);
  const present = await first.exists(PLAN_FILE);
  const { done } = experimentProgress(entries);
  for (const stage of BASELINE_STAGES) {
    if (!done.has(stage)) continue;
    const sidecar = parseSidecar(await storage.readText(sidecarFile(stage)), sidecarFile(stage));
    found.push(...sidecarFindings(sidecar, entries));
    if (sidecar.source && sidecar.source.specSha256 !== matched.planSha256) {
      found.push(`${sidecarFile(stage)}: found plan ${sidecar.source.specSha256}; wanted ${matched.planSha256}`);
    }
    for (const { result, rollouts, journal } of present ? (sidecar.source?.reports ?? []) : []) {
      for (const { file, sha256 } of [result, rollouts]) {
        const problem = await evidenceProblem(first, { file, sha256, entry: journal.line - 1 });
        if (problem !== null) found.push(problem);
      }
    }
  }
  return found;
}

async function selected(subject: Subject): Promise<string[]> {
  if (!hasPassed(subject, 'selection')) return [];
  const { storage, plan } = subject;
  const points = [];
  for (const step of [0, ...plan.recipe.dev.steps]) points.push(await devPoint(storage, plan.recipe, step));
  const wanted = canonicalJson({ ...selectCandidate(points[0]!, points.slice(1)) });
  const { schema: _schema, planSha256: _plan, ...recorded } = JSON.parse(await storage.readText(EVIDENCE.selection));
  return canonicalJson(recorded) === wanted
    ? []
    : [`${EVIDENCE.selection}: found ${canonicalJson(recorded)}; wanted ${wanted}`];
}

function assessedStep({ entries }: Subject): number {
  const entry = entries.findLast((one) => one.kind === 'stage-end' && one.data.stage === 'selection');
  return entry?.kind === 'stage-end' ? Number(entry.data.facts['assessed']) : Number.NaN;
}

async function merged(subject: Subject): Promise<string[]> {
  if (!hasPassed(subject, 'selection')) return [];
  const folder = mergedFolder(assessedStep(subject));
  const file = `${folder}/merge-audit.json`;
  const { treeSha256: wanted } = parseMergeAudit(await subject.storage.readText(file), file);
  const source = folderSource(join(subject.folder, folder));
  const names = (await source.list()).filter((name) => name !== 'merge-audit.json');
  const entries = await treeEntries(source, newSha256, names);
  const found = hashEntries(entries, newSha256);
  if (found === wanted) return [];
  return [
    `${join(subject.folder, folder)}: found tree SHA-256 ${found}; wanted ${wanted}, as its audit says; ` +
      `${suspects(entries, subject.plan)}`,
  ];
}

/** All but the weights of a merged model are the baseline's files: which of them are not, else the weights. */
function suspects(entries: readonly TreeEntry[], { inputs }: Plan): string {
  const frozen = new Map(inputs.baseline.files.map(({ path, sha256 }) => [path, sha256]));
  const isWeights = (name: string) => name.includes('.safetensors');
  const changed = entries.filter(([name, , sha256]) => !isWeights(name) && frozen.get(name) !== sha256);
  if (changed.length > 0) {
    return `it has ${changed.map(([name, , sha256]) => `${name} with SHA-256 ${sha256}, not the baseline's`).join('; ')}`;
  }
  const weights = entries.flatMap(([name]) => (isWeights(name) ? [name] : [])).join(', ') || 'no weights';
  const lacking = [...frozen.keys()].filter((name) => !entries.some(([own]) => own === name)).join(', ') || 'none';
  return `what it has of the baseline's files is theirs, so ${weights} changed, or a file is missing (of the baseline's: ${lacking})`;
}

async function inspected(subject: Subject): Promise<string[]> {
  if (!hasPassed(subject, 'retention')) return [];
  const problem = await inspectionProblem(subject.storage, subject.plan, assessedStep(subject));
  return problem === null ? [] : [problem];
}

async function reported(subject: Subject): Promise<string[]> {
  const { storage, entries, rebuild, folder } = subject;
  const entry = entries.findLast((one) => one.kind === 'stage-end' && one.data.stage === 'report');
  if (entry?.kind !== 'stage-end' || !rebuild) return [];
  const wanted = String(entry.data.facts['contentSha256']);
  const again = await rebuild(folder);
  const found: string[] = [];
  if (again.contentSha256 !== wanted) {
    found.push(`the files: found a report with content ${again.contentSha256}; wanted ${wanted}`);
  }
  for (const [file, bytes] of Object.entries(again.files)) {
    const label = `${storage.label}/${file}`;
    const present = await storage.exists(file);
    const place = present ? firstDifference(bytes, await storage.read(file)) : null;
    if (present && !place) continue;
    found.push(
      `${label}: found ${place ? `other bytes than the files give (${placeText(place)})` : 'no such file'}; wanted the ` +
        'report of these files. `shaderl report` writes it again, as after the language inspection was filled in',
    );
  }
  return found;
}

/** Verifies an experiment's folder. Findings are returned; only a plan or journal that cannot be read throws. */
export async function verifyExperiment(dir: string, rebuild: Subject['rebuild']): Promise<Verification> {
  const folder = resolve(dir);
  const { plan, sha256 } = await loadPlan(join(folder, PLAN_FILE), folder);
  const storage = createNodeStorage(folder);
  const { entries } = await readJournal(storage, 'journal.jsonl');
  const training = createNodeStorage(join(folder, TRAINING_FOLDER));
  const subject: Subject = { folder, plan, planSha256: sha256, storage, training, entries, rebuild };
  const results: Check[] = [];
  for (const [name, find] of checks) {
    const detail = await find(subject).catch((error: unknown) => {
      // A file that cannot be trusted at all is a finding of the check that read it.
      if (error instanceof ShaderlError || error instanceof SyntaxError) return [error.message];
      throw error;
    });
    results.push({ name, passed: detail.length === 0, detail });
  }
  return { passed: results.every(({ passed }) => passed), planSha256: sha256, checks: results };
}
