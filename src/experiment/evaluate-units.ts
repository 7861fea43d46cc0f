// Evaluates units one by one, each written, hashed and journaled before the next begins.
// Not the sampling. Invariant: an answer counts only if it is of the policy, the items, the seed and the family that
// the
// unit names, and no sample was lost to a service; infrastructure is never a score.
import { type EvaluationFile, formatEvaluation, parseEvaluation } from '../evaluation/results.ts';
import { readJournal } from '../journal.ts';
import { withoutTimings } from '../journal-events.ts';
import { canonicalBytes } from '../lib/canonical-json.ts';
import { EnvError, EvaluationError } from '../lib/errors.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import type { Storage } from '../lib/storage.ts';
import type { DevPoint } from '../select.ts';
import { type StageContext, Stopped, stopHere } from './context.ts';
import { dataIdentity, type ExperimentData } from './data.ts';
import { sealedStep } from './evidence.ts';
import { requireMerged } from './merged.ts';
import { type Plan, TRAINING_FOLDER } from './plan.ts';
import type { UnitAnswer, UnitPolicy, UnitSuite } from './ports.ts';
import type { Recipe } from './recipe.ts';
import { devUnits, type SuiteName, type Unit, unitFile, unitRollouts } from './units.ts';

export interface SuiteItems {
  suite: UnitSuite;
  items: number;
  dataSha256: string;
}

export async function suiteItems(name: SuiteName, data: ExperimentData, { training }: Recipe): Promise<SuiteItems> {
  const list = {
    'dev-agent': data.dev,
    'dev-math': data.mathDev,
    'final-agent': data.final,
    'retention-math': data.mgsm,
  }[name];
  const dataSha256 = await sha256HexAsync(dataIdentity(list));
  const { seeds } = training.data;
  const agent = (split: 'dev' | 'final'): UnitSuite => ({
    kind: 'agent',
    split,
    seed: seeds[split],
    episodes: list.length,
  });
  if (name === 'dev-agent') return { suite: agent('dev'), items: list.length, dataSha256 };
  if (name === 'final-agent') return { suite: agent('final'), items: list.length, dataSha256 };
  const items = name === 'dev-math' ? data.mathDev : data.mgsm;
  return { suite: { kind: 'math', items, dataSha256 }, items: items.length, dataSha256 };
}

/** Evaluates the units that are not journaled yet. `assessed` is the step whose policy may be a merged model. */
export async function evaluateUnits(
  context: StageContext,
  units: readonly Unit[],
  data: ExperimentData,
  assessed: number | null,
): Promise<void> {
  const { ports } = context;
  const done = new Set(ports.journal.entries.flatMap((e) => (e.kind === 'evaluation' ? [e.data.name] : [])));
  for (const unit of units) {
    if (done.has(unit.name)) continue;
    stopHere(context);
    await evaluateUnit(context, unit, await suiteItems(unit.suite, data, context.plan.recipe), assessed);
  }
}

async function evaluateUnit(context: StageContext, unit: Unit, of: SuiteItems, assessed: number | null): Promise<void> {
  const { ports, plan } = context;
  const { storage } = ports;
  const folder = ports.storageAt(TRAINING_FOLDER);
  const sealed =
    unit.step === 0 ? null : await sealedStep(folder, (await readJournal(folder, 'journal.jsonl')).entries, unit.step);
  const merged = unit.step === assessed && plan.recipe.final.policy === 'merged';
  const policy: UnitPolicy =
    sealed === null
      ? { kind: 'base' }
      : merged
        ? { kind: 'merged', folder: await requireMerged(ports, unit.step) }
        : { kind: 'checkpoint', folder: sealed.folder, sealSha256: sealed.sealSha256 };
  const began = ports.seconds();
  let answer: UnitAnswer;
  try {
    answer = await ports.evaluate(unit, policy, of.suite, () => context.stopReason() !== null);
  } catch (error) {
    // A stop ends the evaluator in the middle of its work: that is no failure of it.
    const reason = context.stopReason();
    throw reason === null ? error : new Stopped(reason);
  }
  requireAnswer(context, unit, of, answer, policy.kind === 'checkpoint' ? (sealed?.adapterSha256 ?? null) : null);
  const { evaluation, episodes } = answer;
  const rollouts = new TextEncoder().encode(episodes.map((episode) => `${JSON.stringify(episode)}\n`).join(''));
  const result = new TextEncoder().encode(formatEvaluation(evaluation));
  await storage.write(unitRollouts(unit), rollouts);
  await storage.write(unitFile(unit), result);
  const { totals } = evaluation;
  await ports.journal.append({
    kind: 'evaluation',
    data: {
      step: unit.step,
      name: unit.name,
      suite: evaluation.suite,
      policy: sealed?.adapterSha256 ?? 'base',
      items: totals.items,
      metrics: {
        correct: totals.correct,
        samples: totals.samples,
        capped: totals.capped,
        toolErrors: totals.toolErrors,
      },
      result: { file: unitFile(unit), sha256: await sha256HexAsync(result) },
      rollouts: {
        file: unitRollouts(unit),
        sha256: await sha256HexAsync(rollouts),
        evidenceSha256: await sha256HexAsync(canonicalBytes(episodes.map(withoutTimings))),
      },
      seconds: ports.seconds() - began,
    },
  });
}

/** Why an answer is not one to the unit, or null. `adapterSha256` is the policy's; null for a base or merged model. */
export function answerProblem(
  plan: Plan,
  unit: Unit,
  { items, dataSha256 }: SuiteItems,
  evaluation: EvaluationFile,
  episodes: number,
  adapterSha256: string | null,
): { what: string; found: unknown; wanted: unknown } | null {
  const checks: [string, unknown, unknown][] = [
    ['samples lost to a service', evaluation.totals.byOutcome.infrastructure, 0],
    ['items', evaluation.totals.items, items],
    ['rollouts', episodes, items],
    ['dataSha256', evaluation.dataSha256, dataSha256],
    ['adapterSha256', evaluation.adapterSha256, adapterSha256],
    ['family', evaluation.family, plan.kernels.family],
    ['seeds', evaluation.seeds.join(), String(unit.seed)],
    ['cap', evaluation.sampling.maxTokens, plan.positions.sets[unit.suite].completionCap],
  ];
  const wrong = checks.find(([, found, wanted]) => found !== wanted);
  return wrong ? { what: wrong[0], found: wrong[1], wanted: wrong[2] } : null;
}

function requireAnswer(
  { plan, ports }: StageContext,
  unit: Unit,
  of: SuiteItems,
  { evaluation, episodes }: UnitAnswer,
  adapterSha256: string | null,
): void {
  const problem = answerProblem(plan, unit, of, evaluation, episodes.length, adapterSha256);
  if (!problem) return;
  const lost = evaluation.totals.byOutcome.infrastructure > 0;
  throw new (lost ? EnvError : EvaluationError)(
    lost ? 'lost-samples' : 'other-evaluation',
    `evaluating ${unit.name} in ${ports.storage.label}: found ${problem.what} ${problem.found}; wanted ` +
      `${problem.wanted}. Nothing was recorded of it: run again with --resume.`,
  );
}

/** What the selection rule reads of a step's DEV evaluations. */
export async function devPoint(storage: Storage, recipe: Recipe, step: number): Promise<DevPoint> {
  const of = async (suite: SuiteName) => {
    const unit = devUnits(recipe).find((one) => one.suite === suite && one.step === step)!;
    return parseEvaluation(await storage.readText(unitFile(unit)), `${storage.label}/${unitFile(unit)}`).totals;
  };
  const [agent, math] = [await of('dev-agent'), await of('dev-math')];
  return {
    step,
    mathCorrect: math.correct,
    mathSamples: math.samples,
    strict: agent.correct,
    agentSamples: agent.samples,
    toolErrors: agent.toolErrors,
  };
}
