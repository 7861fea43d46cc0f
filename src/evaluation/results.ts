// The file of one evaluation, `shaderl.evaluation/1`: what was evaluated, how, and every sample's outcome.
// Not a comparison: `compare.ts` reads two of these. Reading and writing on disk is in `files-node.ts`.
// Invariant: (id, seed) is unique, every seed is declared, and the totals are those of the items.
import { z } from 'zod';
import { EvaluationError } from '../lib/errors.ts';
import { OUTCOMES } from './outcomes.ts';

const hash = z.string().regex(/^[0-9a-f]{64}$/, 'wanted 64 lower-case hex digits (SHA-256)');
const count = z.int().min(0);

const samplingSettings = z.strictObject({
  temperature: z.number().min(0),
  topP: z.number(),
  topK: z.int(),
  minP: z.number(),
  /** Limit of the retained stream in tokens. */
  maxTokens: z.int().positive(),
  /** Tool-calling rounds; 0 for suites without tools. */
  maxToolRounds: count,
  thinking: z.boolean(),
  /** Tokens of reasoning after which `</think>` is forced; null where nothing is forced. */
  thinkingBudget: count.nullable(),
});
export type SamplingSettings = z.infer<typeof samplingSettings>;

const evaluationItem = z.strictObject({
  id: z.string().min(1),
  seed: z.int(),
  outcome: z.enum(OUTCOMES),
  /** Agent suite: strict success and shaped reward. Absent where the environment failed. */
  strict: z.boolean().optional(),
  reward: z.number().optional(),
  /** Errors that the environment itself reported, and calls that were never dispatched. */
  toolErrors: count.optional(),
  invalidDispatches: count.optional(),
  toolErrorClasses: z.record(z.string(), count).optional(),
  /** The answer that was read (canonical decimal for math), and the rule that fired. */
  answer: z.string().nullable().optional(),
  rule: z.string().optional(),
  ambiguous: z.boolean().optional(),
  capped: z.boolean(),
  /** How the reply ended; `budget-forced`: `</think>` was forced. */
  finish: z.enum(['finished', 'budget-forced', 'truncated']).optional(),
  sampledTokens: count,
  discardedTokens: count,
  seconds: z.number().min(0),
  finalText: z.string(),
});
export type EvaluationItem = z.infer<typeof evaluationItem>;

const evaluationTotals = z.strictObject({
  items: count,
  samples: count,
  correct: count,
  byOutcome: z.strictObject({
    correct: count,
    wrong: count,
    no_answer: count,
    contradictory: count,
    truncated: count,
    infrastructure: count,
  }),
  capped: count,
  ambiguous: count,
  toolErrors: count,
  invalidDispatches: count,
  sampledTokens: count,
  discardedTokens: count,
  /** Sum over samples; samples may run at the same time, so this is not wall time. */
  seconds: z.number().min(0),
});
export type EvaluationTotals = z.infer<typeof evaluationTotals>;

const evaluationFile = z.strictObject({
  schema: z.literal('shaderl.evaluation/1'),
  suite: z.enum(['agent', 'math']),
  /** SHA-256 of the item set (data file, or canonical JSON of generated tasks); null if it has none. */
  dataSha256: hash.nullable(),
  modelTreeSha256: hash,
  /** Null: the base model. */
  adapterSha256: hash.nullable(),
  device: z.string(),
  family: z.enum(['portable', 'matrix']),
  sampling: samplingSettings,
  seeds: z.array(z.int()).min(1),
  /** Wall-clock seconds of the whole evaluation. */
  wallSeconds: z.number().min(0),
  /**
   * Tokens that were drawn and are in no sample, decoded ahead of a stop or in an attempt that a service's failure ended.
   * As the wall time, it differs between equal evaluations. Absent in older files.
   */
  droppedTokens: count.optional(),
  items: z.array(evaluationItem),
  totals: evaluationTotals,
});
export type EvaluationFile = z.infer<typeof evaluationFile>;

/** Sums up the items, in their order. */
function computeTotals(items: readonly EvaluationItem[]): EvaluationTotals {
  const byOutcome = { correct: 0, wrong: 0, no_answer: 0, contradictory: 0, truncated: 0, infrastructure: 0 };
  const totals = { toolErrors: 0, invalidDispatches: 0, sampledTokens: 0, discardedTokens: 0, seconds: 0 };
  for (const item of items) {
    byOutcome[item.outcome] += 1;
    totals.toolErrors += item.toolErrors ?? 0;
    totals.invalidDispatches += item.invalidDispatches ?? 0;
    totals.sampledTokens += item.sampledTokens;
    totals.discardedTokens += item.discardedTokens;
    totals.seconds += item.seconds;
  }
  return {
    items: new Set(items.map((item) => item.id)).size,
    samples: items.length,
    correct: byOutcome.correct,
    byOutcome,
    capped: items.filter((item) => item.capped).length,
    ambiguous: items.filter((item) => item.ambiguous === true).length,
    ...totals,
  };
}

/** Completes and checks an evaluation: adds the schema name and the totals. `file` is named in errors. */
export function buildEvaluation(
  input: Omit<EvaluationFile, 'schema' | 'totals'>,
  file = 'the new evaluation',
): EvaluationFile {
  return checkEvaluation({ schema: 'shaderl.evaluation/1', ...input, totals: computeTotals(input.items) }, file);
}

/** Parses the text of an evaluation file. Throws EvaluationError naming `file` and the field. */
export function parseEvaluation(text: string, file: string): EvaluationFile {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new EvaluationError(
      'not-json',
      `reading ${file}: found text that is not JSON (${(error as Error).message}); ` +
        'wanted a shaderl.evaluation/1 file. Write it again with `shaderl evaluate --output`.',
      { cause: error },
    );
  }
  return checkEvaluation(data, file);
}

/** The text of an evaluation file: JSON, two spaces, a final newline. */
export function formatEvaluation(evaluation: EvaluationFile): string {
  return `${JSON.stringify(evaluation, null, 2)}\n`;
}

function valueAt(data: unknown, path: readonly PropertyKey[]): string {
  let value = data;
  for (const key of path) value = (value as Record<PropertyKey, unknown> | null | undefined)?.[key];
  return value === undefined ? 'nothing' : JSON.stringify(value).slice(0, 80);
}

/** Checks parsed data against the schema and its invariants. Throws EvaluationError naming `file` and the field. */
export function checkEvaluation(data: unknown, file: string): EvaluationFile {
  const parsed = evaluationFile.safeParse(data);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    const field = issue.path.map(String).join('.') || 'the top level';
    throw new EvaluationError(
      'bad-field',
      `reading ${file}: field ${field} is ${valueAt(data, issue.path)}; wanted: ${issue.message}. ` +
        'Correct the field, or write the file again with `shaderl evaluate --output`.',
    );
  }
  checkSamples(parsed.data, file);
  return parsed.data;
}

function checkSamples({ items, seeds, totals }: EvaluationFile, file: string): void {
  const seen = new Map<string, number>();
  items.forEach((item, index) => {
    const key = JSON.stringify([item.id, item.seed]);
    const earlier = seen.get(key);
    if (earlier !== undefined) {
      throw new EvaluationError(
        'duplicate-sample',
        `reading ${file}: items.${index} has id "${item.id}" and seed ${item.seed}, as items.${earlier} has; ` +
          'wanted each (id, seed) once. Drop one of the two, or evaluate again.',
      );
    }
    if (!seeds.includes(item.seed)) {
      throw new EvaluationError(
        'undeclared-seed',
        `reading ${file}: items.${index}.seed is ${item.seed}; wanted one of seeds [${seeds.join(', ')}]. ` +
          'Add the seed to `seeds`, or drop the item.',
      );
    }
    seen.set(key, index);
  });
  const wanted = flatten(computeTotals(items));
  for (const [field, found] of flatten(totals)) {
    if (wanted.get(field) === found) continue;
    throw new EvaluationError(
      'wrong-total',
      `reading ${file}: totals.${field} is ${found}, but the items give ${wanted.get(field)}; wanted them equal. ` +
        'The file was edited or cut: evaluate again.',
    );
  }
}

function flatten(totals: EvaluationTotals): Map<string, number> {
  const flat = new Map<string, number>();
  for (const [key, value] of Object.entries(totals)) {
    if (typeof value === 'number') flat.set(key, value);
    else for (const [name, n] of Object.entries(value)) flat.set(`${key}.${name}`, n);
  }
  return flat;
}
