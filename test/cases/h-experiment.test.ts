// Bug cases H6, H8 and H11 where an experiment judges: paired by item with all its seeds together, and every class of
// outcome apart.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compareEvaluations } from '../../src/evaluation/compare.ts';
import type { Outcome } from '../../src/evaluation/outcomes.ts';
import { buildEvaluation, type EvaluationItem } from '../../src/evaluation/results.ts';
import { suiteOf } from '../../src/experiment/assessment.ts';
import { runExperiment } from '../../src/experiment/driver.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import type { UnitAnswer } from '../../src/experiment/ports.ts';
import type { ExperimentReport } from '../../src/experiment/report.ts';
import { finalUnits, type Unit } from '../../src/experiment/units.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { experimentReport } from '../../workers/experiment/report-node.ts';
import { type Inputs, preparedPlan, smallPorts, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-h-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: Inputs;
beforeAll(() => {
  inputs = writeInputs(base);
});

type Finished = LoadedPlan & { folder: string; report: ExperimentReport };

/** A whole experiment whose evaluations are changed item by item. */
async function experimentWith(
  change: (unit: Unit, item: EvaluationItem, index: number) => EvaluationItem,
): Promise<Finished> {
  const plan = await preparedPlan(base, inputs);
  const ports = await smallPorts(plan, {
    change: ({ evaluate }) => ({
      async evaluate(unit, ...asked): Promise<UnitAnswer> {
        const answer = await evaluate(unit, ...asked);
        const { totals: _totals, schema: _schema, ...evaluation } = answer.evaluation;
        const items = evaluation.items.map((item, index) => change(unit, item, index));
        return { ...answer, evaluation: buildEvaluation({ ...evaluation, items }) };
      },
    }),
  });
  await runExperiment(plan, ports, { resume: false, qualificationOnly: false });
  return { ...plan, report: await experimentReport(plan.folder) };
}

describe('H6, H8: two seeds of an item that always agree', () => {
  let run: Finished;
  beforeAll(async () => {
    run = await experimentWith((unit, item, index) => {
      if (unit.suite !== 'final-agent') return item;
      const hit = unit.step === 0 ? index === 0 : index < 4;
      return { ...item, outcome: hit ? 'correct' : 'wrong', strict: hit, reward: hit ? 1 : 0.3 };
    });
  });

  test('give the interval of one seed: samples of an item are no evidence of their own', async () => {
    const { final } = run.report.content;
    const storage = createNodeStorage(run.folder);
    const assessed = run.report.content.selection!.assessed;
    const one = finalUnits(run.plan.recipe, assessed).filter(({ seed }) => seed === 42);
    const [a, b] = [await suiteOf(storage, one, 0), await suiteOf(storage, one, assessed)];
    const { resamples, seed } = run.plan.recipe.comparison;
    const single = compareEvaluations(a, b, { resamples, seed, files: ['a', 'b'] });
    expect(final!.samples).toBe(2 * single.samples);
    expect(final!.difference.interval).toEqual(single.difference.interval);
    expect(final!.mcnemar).toEqual(single.mcnemar);
  });

  test('are counted as items won and lost, on the same items', () => {
    expect(run.report.content.final).toMatchObject({ items: 6, wins: 3, losses: 0, ties: 3 });
  });
});

test('H11: every class of outcome has its own count, and only a correct answer is retained', async () => {
  const classes: Outcome[] = ['wrong', 'no_answer', 'contradictory', 'truncated'];
  const { report } = await experimentWith((unit, item, index) =>
    unit.suite === 'retention-math' && unit.step > 0
      ? { ...item, outcome: classes[index]!, capped: classes[index] === 'truncated' }
      : unit.suite === 'retention-math'
        ? { ...item, outcome: index === 0 ? 'correct' : 'wrong' }
        : item,
  );
  const { comparison, verdict } = report.content.retention!;
  const counts = Object.fromEntries(Object.entries(comparison.outcomes).map(([name, { b }]) => [name, b]));
  expect(counts).toEqual({ correct: 0, wrong: 2, no_answer: 2, contradictory: 2, truncated: 2, infrastructure: 0 });
  expect(comparison.malformedAnswers.b).toBe(4);
  expect(comparison.capped).toMatchObject({ a: 0, b: 2 });
  expect(verdict).toMatchObject({ met: false, overall: { baseline: 2, candidate: 0 } });
  expect(report.content.recommendation).toMatchObject({ recommended: 'baseline' });
});
