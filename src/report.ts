// Turns the records of a run into report.json; `report/html.ts` renders it.
// Not an evaluation: it computes no outcome anew. Invariant: every figure comes from a step record, an evaluation file
// or their comparison; `release_eligible` is false.
import { compareEvaluations } from './evaluation/compare.ts';
import type { EvaluationFile } from './evaluation/results.ts';
import { EvaluationError } from './lib/errors.ts';
import type { EvaluationSummary, ReportInput, ReportJson } from './report/schema.ts';
import { cannotShow, canShow, headline } from './report/statements.ts';

function summarise({ schema: _schema, dataSha256: _data, items: _items, ...rest }: EvaluationFile): EvaluationSummary {
  return rest;
}

function checkSteps(input: ReportInput): void {
  input.steps.forEach(({ step }, index) => {
    const previous = input.steps[index - 1]?.step;
    if (Number.isInteger(step) && (previous === undefined || step > previous)) return;
    throw new EvaluationError(
      'steps-out-of-order',
      `building the report "${input.title}": found step ${step} after step ${previous ?? 'none'}; ` +
        'wanted integer steps in ascending order, each once. ' +
        'Merge the journals of an interrupted run before reporting.',
    );
  });
}

/**
 * Builds the report of a run. `before` and `after` are compared if both are given.
 * Throws EvaluationError if steps are not ascending or the two evaluations are not comparable.
 */
export function buildReport(input: ReportInput): ReportJson {
  checkSteps(input);
  const { before, after } = input;
  const comparison =
    before && after
      ? compareEvaluations(before, after, {
          seed: input.bootstrapSeed,
          files: ['the evaluation before training', 'the evaluation after training'],
        })
      : null;
  return {
    schema: 'shaderl.report/1',
    release_eligible: false,
    title: input.title,
    task: input.task,
    headline: headline(comparison, input.steps.length),
    canShow: canShow(input, comparison),
    cannotShow: cannotShow(input, comparison),
    config: input.config,
    device: input.device,
    trainingSeed: input.trainingSeed,
    seconds: input.seconds,
    steps: input.steps,
    before: before && summarise(before),
    after: after && summarise(after),
    comparison,
    audit: input.audit,
    checkpoints: input.checkpoints,
    rollouts: input.rollouts,
  };
}
