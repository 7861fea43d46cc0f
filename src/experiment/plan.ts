// The plan of an experiment: everything that is frozen before the first rollout, as one canonical JSON file.
// Not the freezing (prepare-node.ts) and not the check (freeze-node.ts). Pure: opens no file.
// Invariant: the file's bytes are the canonical JSON of what was parsed, so one SHA-256 stands for all of it.
import { z } from 'zod';
import { sha256Text } from '../journal-events.ts';
import { canonicalBytes } from '../lib/canonical-json.ts';
import { PlanError } from '../lib/errors.ts';
import { sha256HexAsync } from '../lib/sha256.ts';
import { issuesText } from '../lib/zod-issues.ts';
import { type ResolvedRunConfig, resolveRunConfig } from '../run-config.ts';
import { firstDifference, placeText } from './place.ts';
import { planPositions } from './positions.ts';
import { type Recipe, recipeSchema } from './recipe.ts';
import { planService } from './service.ts';

export const PLAN_FILE = 'plan.json';
/** `<sha256>  plan.json`, as sha256sum writes and checks it. */
export const PLAN_HASH_FILE = 'plan.sha256';

export const ARMS = ['local', 'nemo-gym', 'openenv'] as const;

const frozenFile = z.strictObject({ path: z.string(), bytes: z.int().min(0), sha256: sha256Text });
export type FrozenFile = z.infer<typeof frozenFile>;

const frozenTree = z.strictObject({
  folder: z.string(),
  /** Tree hash: SHA-256 of the canonical JSON of [[path, bytes, sha256], ...] in the order of `files`. */
  treeSha256: sha256Text,
  declaredIdentity: z.string().nullable(),
  expect: sha256Text.nullable(),
  /** Paths relative to the folder, sorted by UTF-8 bytes. */
  files: z.array(frozenFile),
});
export type FrozenTree = z.infer<typeof frozenTree>;

/** Files that `prepare` generated into the plan's folder. */
const dataFile = frozenFile.extend({ items: z.int().min(1) });

const ids = z.array(z.string()).min(1);

export const planSchema = z.strictObject({
  schema: z.literal('shaderl.plan/2'),
  arm: z.enum(ARMS),
  recipe: recipeSchema,
  /** Null for arm local: the environment is part of the program. */
  service: planService.nullable(),
  /** Second arm: the first one, which everything but the service is equal to. */
  matched: z
    .strictObject({
      /** Folder of the first arm. It is read, never written to. */
      folder: z.string(),
      planSha256: sha256Text,
      arm: z.enum(ARMS),
      /** `reuse`: completed baseline suites of the first arm are taken over whole. */
      baseline: z.enum(['reuse', 'rerun']),
    })
    .nullable(),
  program: z.strictObject({
    version: z.string(),
    /** Runtime files (.ts, .mjs, .wgsl) by path from the program's root, and package.json. */
    files: z.array(frozenFile).min(1),
    /** package-lock.json: the dependencies. */
    lock: frozenFile,
  }),
  kernels: z.strictObject({
    family: z.enum(['portable', 'matrix']),
    shaders: z.record(z.string(), sha256Text),
  }),
  inputs: z.strictObject({
    baseline: frozenTree,
    tokenizer: frozenTree,
    /** SHA-256 of the chat template's text as it is used. */
    chatTemplateSha256: sha256Text,
    mathDev: frozenFile,
    /** The SFT training file beside it, which the math items were shown to be disjoint from. */
    mathTrain: frozenFile,
    mgsm: frozenFile,
  }),
  data: z.strictObject({
    train: dataFile,
    dev: dataFile,
    final: dataFile,
    mathDev: dataFile,
    mgsm: dataFile,
    schedule: dataFile,
  }),
  disjointness: z.strictObject({
    /** SFT lines that were read, and math items that were looked for in them. */
    sftLines: z.int().min(0),
    mathItems: z.int().min(0),
    trainEpisodes: z.int().min(0),
    heldOut: z.int().min(0),
  }),
  /** Longest prompt and cap of each set of rollouts, within the model's positions. */
  positions: planPositions,
  /** Resolved run configuration of the training, its `output` a name inside the plan's folder. */
  training: z.record(z.string(), z.unknown()),
  trainingSha256: sha256Text,
  selectionRule: z.string(),
  /** Items that a person or program looks at, chosen now. */
  inspection: z.strictObject({ seed: z.int(), agent: ids, mgsm: ids }),
  /** Digests that find the block of a large file that changed; absent where every file was kept whole. */
  blocks: frozenFile.optional(),
});
export type Plan = z.infer<typeof planSchema>;

export interface LoadedPlan {
  plan: Plan;
  sha256: string;
}

export const TRAINING_FOLDER = 'training';

/** The run configuration of a recipe's training with its base model. */
export async function trainingConfig(
  recipe: Recipe,
  model: string,
  change: { steps?: number; every?: number } = {},
): Promise<ResolvedRunConfig> {
  const { training, kernels, final } = recipe;
  const config = {
    ...training,
    model,
    output: TRAINING_FOLDER,
    kernels,
    steps: change.steps ?? training.steps,
    checkpoints: { ...training.checkpoints, every: change.every ?? training.checkpoints.every },
    // The experiment evaluates by its own stages; these two are here because the schema has them.
    evaluation: { episodes: final.episodes, seeds: final.seeds, every: null },
  };
  return resolveRunConfig(JSON.stringify(config), `the training of recipe ${recipe.name}`);
}

/** The training of a plan, resolved again and checked against what the plan froze. Throws PlanError `plan-changed`. */
export async function planTraining(plan: Plan, label: string): Promise<ResolvedRunConfig> {
  const run = await resolveRunConfig(JSON.stringify(plan.training), `${label}, "training"`);
  if (run.sha256 === plan.trainingSha256) return run;
  throw new PlanError(
    'plan-changed',
    `reading ${label}: "training" resolves to SHA-256 ${run.sha256}; the plan froze ${plan.trainingSha256}. ` +
      'Prepare a new plan with this program; this one belongs to another.',
  );
}

/** The bytes of plan.json. */
export function planBytes(plan: Plan): Uint8Array {
  return canonicalBytes(plan);
}

export function planHashLine(sha256: string): string {
  return `${sha256}  ${PLAN_FILE}\n`;
}

/**
 * Parses plan.json. `hashLine` is the text of plan.sha256; `keptCopy` gives the copy that `prepare` kept, for the place
 * of a change alone. Throws PlanError `bad-plan` or `plan-changed`, naming the file with the hash wanted and found.
 */
export async function parsePlan(
  bytes: Uint8Array,
  hashLine: string,
  label: string,
  keptCopy: () => Promise<Uint8Array | null> = async () => null,
): Promise<LoadedPlan> {
  const sha256 = await sha256HexAsync(bytes);
  const frozen = hashLine.slice(0, 64);
  if (hashLine !== planHashLine(sha256)) {
    throw new PlanError(
      'plan-changed',
      `reading ${label}: found SHA-256 ${sha256}; wanted ${frozen}, as ${PLAN_HASH_FILE} beside it says; ` +
        `${await changedPlace(bytes, sha256, hashLine, await keptCopy())}. A plan cannot be changed after \`prepare\`: ` +
        'restore it, or prepare a new one in another folder.',
    );
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw badPlan(label, error instanceof Error ? error.message : String(error), 'JSON');
  }
  const parsed = planSchema.safeParse(value);
  if (!parsed.success) throw badPlan(label, issuesText(parsed.error, value), 'a shaderl.plan/2 file');
  const place = firstDifference(canonicalBytes(parsed.data), bytes);
  if (place) {
    const found = `JSON in another spelling or with other members (${placeText(place)})`;
    throw badPlan(label, found, 'canonical JSON (RFC 8785)');
  }
  return { plan: parsed.data, sha256 };
}

/**
 * What of plan.json and plan.sha256 changed, and where: by the copy if it has either one's hash, else by where the text
 * stops being the canonical form of its own value.
 */
async function changedPlace(
  bytes: Uint8Array,
  sha256: string,
  hashLine: string,
  copy: Uint8Array | null,
): Promise<string> {
  const copySha256 = copy && (await sha256HexAsync(copy));
  const hashPlace = () => {
    const place = firstDifference(new TextEncoder().encode(planHashLine(sha256)), new TextEncoder().encode(hashLine));
    return `${PLAN_FILE} is as it was written, ${PLAN_HASH_FILE} is not: ${place ? placeText(place) : 'no byte'}`;
  };
  if (copySha256 === sha256 || hashLine.startsWith(sha256)) return hashPlace();
  if (copy && hashLine.startsWith(copySha256!)) {
    const place = firstDifference(copy, bytes);
    if (place) return placeText(place);
  }
  const lost = 'which byte changed cannot be told, no copy of the plan was kept';
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    const place = firstDifference(canonicalBytes(value), bytes);
    return place ? `${lost}, but it is no longer canonical: ${placeText(place)}` : `${lost}, and it is still canonical`;
  } catch (error) {
    return `${lost}, but it is no longer canonical: ${error instanceof Error ? error.message : String(error)}`;
  }
}

function badPlan(label: string, found: string, wanted: string): PlanError {
  return new PlanError(
    'bad-plan',
    `reading ${label}: found ${found}; wanted ${wanted}, as \`shaderl prepare\` writes it. Prepare a plan.`,
  );
}
