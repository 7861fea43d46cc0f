// A recipe: every number of the experiment protocol, with the german-agent protocol as defaults.
// Not a plan: nothing is hashed and no input is named. Invariant: after `prepare` none of it can change, because the
// plan holds the resolved recipe. Pure: opens no file.
import { parseDocument } from 'yaml';
import { z } from 'zod';
import { PlanError } from '../lib/errors.ts';
import { runConfigSchema } from '../run-config.ts';
import { keyProblems } from '../run-config-problems.ts';
import { SELECTION_RULE } from '../select.ts';
import { serviceContradictions, serviceSection } from './service.ts';

const count = z.int().min(1);
const u32 = z.int().min(0).max(0xffffffff);
const hash = z.string().regex(/^[0-9a-f]{64}$/, '64 lower-case hex digits (a SHA-256)');
const seeds = z
  .array(u32)
  .min(1)
  .refine((list) => new Set(list).size === list.length, 'each seed once');

const inputIdentity = z.strictObject({
  /** What the users call this input; recorded and shown, never checked. */
  declaredIdentity: z.string().nullable().default(null),
  /** Its tree hash as this program defines it (docs/plan.md); checked. */
  expect: hash.nullable().default(null),
});

/**
 * The training part of a run configuration: what names folders and what is settled elsewhere in the plan is left
 * out.
 */
const training = runConfigSchema.omit({
  model: true,
  output: true,
  adapter: true,
  evaluation: true,
  kernels: true,
  service: true,
});

export const recipeSchema = z.strictObject({
  name: z.string().min(1).default('german-agent'),
  baseline: inputIdentity.prefault({}),
  tokenizer: inputIdentity.prefault({}),
  /** What serves the environment where the arm is not `local`. */
  service: serviceSection.prefault({}),
  kernels: z.strictObject({ family: z.enum(['portable', 'matrix']).default('portable') }).prefault({}),
  training: training.prefault({}),
  qualification: z
    .strictObject({
      /** Steps of the uninterrupted run, and after how many the other one is stopped. */
      steps: count.default(4),
      stopAfter: count.default(2),
    })
    .prefault({}),
  dev: z
    .strictObject({
      steps: z.array(count).min(1).default([64, 128, 256]),
      episodes: count.default(64),
      mathItems: count.default(128),
      /** Generation seed of both suites, and of the choice of math items. */
      seed: u32.default(42),
    })
    .prefault({}),
  /**
   * Where a suite's longest prompt and maxCompletionTokens exceed the model's positions: `refuse` the recipe, or `clamp`
   * the cap of that suite to what fits.
   */
  positions: z.enum(['refuse', 'clamp']).default('refuse'),
  selection: z.literal(SELECTION_RULE).default(SELECTION_RULE),
  final: z
    .strictObject({
      episodes: count.default(256),
      seeds: seeds.default([42, 1729, 20261020]),
      /** `merged`: the adapter merged into the base weights is what is assessed, after its audit. */
      policy: z.enum(['adapter', 'merged']).default('adapter'),
    })
    .prefault({}),
  retention: z
    .strictObject({
      /** Items that the MGSM file must hold; all of them are asked. */
      items: count.default(250),
      seeds: seeds.default([42, 20261020]),
    })
    .prefault({}),
  comparison: z.strictObject({ resamples: count.default(10_000), seed: u32.default(20261020) }).prefault({}),
  inspection: z.strictObject({ items: count.default(10), seed: u32.default(42) }).prefault({}),
  budget: z
    .strictObject({
      /** Cumulative wall time of the driver over all attempts. */
      wallSeconds: z.number().gt(0).default(28_800),
      heartbeatSeconds: z.number().gt(0).max(600).default(15),
    })
    .prefault({}),
});
export type Recipe = z.infer<typeof recipeSchema>;

/** Rules between fields, each as found, wanted and remedy. */
function contradictions(recipe: Recipe): string[] {
  const { training: t, dev, qualification, final, retention, inspection } = recipe;
  const found: string[] = [];
  const say = (key: string, value: unknown, wanted: string) =>
    found.push(`"${key}": found ${JSON.stringify(value)}; wanted ${wanted}. Correct the value`);
  const sealed = (step: number) => step <= t.steps && (step % t.checkpoints.every === 0 || step === t.steps);
  for (const step of dev.steps) {
    if (!sealed(step)) {
      const rule =
        `a sealed step: a multiple of training.checkpoints.every, ${t.checkpoints.every}, or the last ` +
        `step, ${t.steps}`;
      say('dev.steps', step, rule);
    }
  }
  if (dev.steps.some((step, i) => i > 0 && step <= dev.steps[i - 1]!)) {
    say('dev.steps', dev.steps, 'ascending steps, each once');
  }
  if (dev.steps.at(-1) !== t.steps) say('dev.steps', dev.steps, `the last step, ${t.steps}, as the last of them`);
  if (t.checkpoints.keep !== 'all') say('training.checkpoints.keep', t.checkpoints.keep, '"all"');
  if (qualification.stopAfter >= qualification.steps) {
    say('qualification.stopAfter', qualification.stopAfter, `less than qualification.steps, ${qualification.steps}`);
  }
  for (const [key, list] of [
    ['final.seeds', final.seeds],
    ['retention.seeds', retention.seeds],
  ] as const) {
    if (!list.includes(inspection.seed)) say(key, list, `inspection.seed, ${inspection.seed}, among them`);
  }
  if (t.data.environment !== 'german' || t.data.tasks !== undefined) {
    const wanted =
      'german without data.tasks: suites, smoke proof and replay of the protocol are of the german task. Another ' +
      'environment is trained on with `shaderl train`';
    say('training.data.environment', t.data.environment, wanted);
  }
  const prompts = t.steps * t.grpo.groupsPerStep;
  if (t.data.count < Math.ceil(prompts / t.grpo.numIterations)) {
    say('training.data.count', t.data.count, `at least ${prompts}: a fresh TRAIN episode for each group of each step`);
  }
  for (const [key, value, wanted] of serviceContradictions(recipe.service)) say(key, value, wanted);
  return found;
}

/**
 * Reads a recipe (JSON or YAML). `label` names the file in messages. Throws PlanError: syntax, unknown-key, bad-value,
 * contradiction; all problems of the file are reported at once.
 */
export function parseRecipe(text: string, label: string): Recipe {
  const document = parseDocument(text, { prettyErrors: true });
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) {
    throw new PlanError(
      'syntax',
      `reading ${label}: found ${problem.message.trimEnd()}; wanted JSON or YAML 1.2. Correct that line.`,
    );
  }
  const input: unknown = document.toJS() ?? {};
  const parsed = recipeSchema.safeParse(input);
  if (!parsed.success) {
    const problems = keyProblems(parsed.error, input, recipeSchema);
    throw new PlanError(problems[0]!.code, `reading ${label}: ${problems.map((one) => one.text).join('.\n')}.`);
  }
  const contradicted = contradictions(parsed.data);
  if (contradicted.length > 0) throw new PlanError('contradiction', `reading ${label}: ${contradicted.join('.\n')}.`);
  return parsed.data;
}
