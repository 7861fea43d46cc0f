// The evaluations of an experiment, cut into units: one policy on one suite with one seed. A unit is what a stop loses.
// Not the evaluating. Invariant: the names of units are unique and follow from the plan; the units of a suite put
// together are the evaluation that one run over all seeds would have made.
import type { EvaluationFile } from '../evaluation/results.ts';
import { buildEvaluation } from '../evaluation/results.ts';
import type { Recipe } from './recipe.ts';

export type SuiteName = 'dev-agent' | 'dev-math' | 'final-agent' | 'retention-math';

export interface Unit {
  /** `dev-agent-step-000064-seed-42`. */
  name: string;
  /** What the journal calls it. */
  purpose: 'dev' | 'final' | 'retention';
  suite: SuiteName;
  /** Optimizer step of the policy; 0 is the baseline. */
  step: number;
  seed: number;
}

function unit(purpose: Unit['purpose'], suite: SuiteName, step: number, seed: number): Unit {
  const policy = step === 0 ? 'baseline' : `step-${String(step).padStart(6, '0')}`;
  return { name: `${suite}-${policy}-seed-${seed}`, purpose, suite, step, seed };
}

/** DEV: baseline and every DEV step, both suites. */
export function devUnits({ dev }: Recipe): Unit[] {
  return [0, ...dev.steps].flatMap((step) => [
    unit('dev', 'dev-agent', step, dev.seed),
    unit('dev', 'dev-math', step, dev.seed),
  ]);
}

/** Final agent assessment: baseline and the assessed step. */
export function finalUnits({ final }: Recipe, assessed: number): Unit[] {
  return [0, assessed].flatMap((step) => final.seeds.map((seed) => unit('final', 'final-agent', step, seed)));
}

export function retentionUnits({ retention }: Recipe, assessed: number): Unit[] {
  return [0, assessed].flatMap((step) =>
    retention.seeds.map((seed) => unit('retention', 'retention-math', step, seed)),
  );
}

export const unitFile = ({ name }: Unit) => `evaluations/${name}.json`;
export const unitRollouts = ({ name }: Unit) => `evaluations/${name}.rollouts.jsonl`;

/** The evaluation over all seeds from one file a seed, in the order given. */
export function combineUnits(files: readonly EvaluationFile[], label: string): EvaluationFile {
  const { schema: _schema, totals: _totals, droppedTokens: _dropped, ...first } = files[0]!;
  const dropped = files.flatMap(({ droppedTokens }) => (droppedTokens === undefined ? [] : [droppedTokens]));
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  return buildEvaluation(
    {
      ...first,
      seeds: files.flatMap(({ seeds }) => seeds),
      wallSeconds: sum(files.map(({ wallSeconds }) => wallSeconds)),
      ...(dropped.length === files.length ? { droppedTokens: sum(dropped) } : {}),
      items: files.flatMap(({ items }) => items),
    },
    label,
  );
}
