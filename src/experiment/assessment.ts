// Puts the units of a suite together and compares baseline and assessed policy, item by item.
// Not an evaluation. Invariant: both arms have the same items, seeds and sampling, or the comparison is refused.
import { type Comparison, compareEvaluations } from '../evaluation/compare.ts';
import { type EvaluationFile, parseEvaluation } from '../evaluation/results.ts';
import type { Storage } from '../lib/storage.ts';
import type { Plan } from './plan.ts';
import { combineUnits, type Unit, unitFile } from './units.ts';

/** The evaluation of one policy over all seeds of a suite. */
export async function suiteOf(storage: Storage, units: readonly Unit[], step: number): Promise<EvaluationFile> {
  const files: EvaluationFile[] = [];
  for (const unit of units.filter((one) => one.step === step)) {
    const file = unitFile(unit);
    files.push(parseEvaluation(await storage.readText(file), `${storage.label}/${file}`));
  }
  return combineUnits(files, `${storage.label}, ${units[0]?.suite} of step ${step}`);
}

/** Compares the assessed step (b) with the baseline (a) under the plan's bootstrap. */
export async function compareSuite(
  { plan, ports }: { plan: Plan; ports: { storage: Storage } },
  units: readonly Unit[],
  step: number,
): Promise<Comparison> {
  const { resamples, seed } = plan.recipe.comparison;
  const a = await suiteOf(ports.storage, units, 0);
  const b = await suiteOf(ports.storage, units, step);
  const suite = units[0]?.suite ?? 'suite';
  return compareEvaluations(a, b, { seed, resamples, files: [`${suite} of the baseline`, `${suite} of step ${step}`] });
}

/** The figures of a comparison that the journal keeps. */
export function assess({ a, b, wins, losses, difference }: Comparison): Record<string, string | number> {
  const { interval } = difference;
  return {
    baselineCorrect: a.correct,
    candidateCorrect: b.correct,
    samples: a.samples,
    wins,
    losses,
    difference: difference.difference,
    low: interval?.low ?? 'none',
    high: interval?.high ?? 'none',
  };
}
