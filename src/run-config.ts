// The file of `train --config`: what a GRPO run is asked to do, with the german-agent recipe as defaults.
// Not a plan: it names folders and seeds, and nothing is hashed but its own text. Pure: it opens no file.
// Invariant: a resolved config has every field, no unknown one, is frozen, and one SHA-256 stands for it.
import { parseDocument } from 'yaml';
import { z } from 'zod';
import { SERVICE_PROTOCOLS } from './environments/service/choice.ts';
import { ownServiceContradictions, ownServiceSection } from './experiment/service.ts';
import { canonicalBytes } from './lib/canonical-json.ts';
import { PlanError } from './lib/errors.ts';
import { sha256HexAsync } from './lib/sha256.ts';
import { keyProblems } from './run-config-problems.ts';

const count = z.int().min(1);
const u32 = z.int().min(0).max(0xffffffff);
const nonNegative = z.number().min(0);
const fraction = z.number().min(0).max(1);
/** A number in [0, 1): AdamW's decay rates. */
const decay = z.number().min(0).lt(1);

const dataSection = z
  .strictObject({
    /** `german`: the program's own task. Else the protocol of a service (section "service") with tasks of its own. */
    environment: z.enum(['german', ...SERVICE_PROTOCOLS]).default('german'),
    /** JSONL file of the service's tasks: NeMo Gym rows, or OpenEnv's {"reset": {...}, "messages": [...]}. */
    tasks: z.string().min(1).optional(),
    /**
     * Seeds of the german splits: training episodes, the ones for selection, the ones for the final assessment. Without
     * a meaning for a service.
     */
    seeds: z
      .strictObject({ train: u32.default(20261020), dev: u32.default(42), final: u32.default(1729) })
      .prefault({}),
    /** Training episodes, 256; of a service the first so many tasks of the file, where 0, the default, is all of them. */
    count: z.int().min(0).optional(),
  })
  .transform((data) => ({ ...data, count: data.count ?? (data.environment === 'german' ? 256 : 0) }));

const generationSection = z.strictObject({
  temperature: z.number().gt(0).default(0.6),
  /** 1 is off. */
  topP: z.number().gt(0).max(1).default(0.95),
  /** 0 is off. */
  topK: z.int().min(0).default(20),
  /** 0 is off. */
  minP: fraction.default(0),
  /** Retained tokens after the prompt: sampled ones, tool observations and framing. */
  maxCompletionTokens: count.default(768),
  /** Longest prompt that a task may have, tools included. */
  maxPromptTokens: count.default(512),
  maxToolRounds: z.int().min(0).default(3),
  enableThinking: z.boolean().default(true),
});

export const lossKind = z.enum(['grpo', 'bnpo', 'dapo', 'dr_grpo', 'cispo', 'gspo', 'dppo_tv', 'dppo_kl']);

/** Thresholds that the DPPO paper (arXiv 2602.04879) is quoted with: binary TV 0.15, binary KL 0.05. */
const DPPO_DELTA = { dppo_tv: 0.15, dppo_kl: 0.05 } as const;

const grpoSection = z
  .strictObject({
    loss: lossKind.default('dapo'),
    /** Weight of the KL to the reference; 0.1, and 0 for dppo, which has none. */
    beta: nonNegative.optional(),
    klBiasCorrection: z.boolean().default(false),
    epsilonLow: nonNegative.default(0.2),
    epsilonHigh: nonNegative.default(0.2),
    /** cispo: the cap on the detached ratio itself. */
    cispoMaxRatio: z.number().gt(0).default(2),
    /** Upper bound of the ratio in the unclipped branch; null is none. */
    delta: z.number().gt(1).nullable().default(null),
    scaleRewards: z.enum(['group', 'batch', 'none']).default('group'),
    /** Optimizer steps on each batch of rollouts. */
    numIterations: count.default(1),
    /** Rollouts of one prompt; a group of one has no advantage. */
    groupSize: z.int().min(2).default(4),
    /** Prompts of one optimizer step. */
    groupsPerStep: count.default(1),
    /** Micro-batches that the groups of one optimizer step are split into. */
    gradientAccumulation: count.default(1),
    /** Leaves rollouts that did not end with a stop token out of the loss. */
    maskTruncated: z.boolean().default(false),
    /** Trust region of dppo, 0.15 (TV) or 0.05 (KL); null for the other losses. */
    dppoDelta: z.number().gt(0).nullable().optional(),
  })
  .transform(({ beta, dppoDelta, ...rest }) => {
    const paper = rest.loss === 'dppo_tv' || rest.loss === 'dppo_kl' ? DPPO_DELTA[rest.loss] : null;
    return { ...rest, beta: beta ?? (paper === null ? 0.1 : 0), dppoDelta: dppoDelta ?? paper };
  });

const optimizerSection = z.strictObject({
  learningRate: nonNegative.default(5e-6),
  /** `linear`: step k (1-based) of N uses learningRate * (N - (k - 1)) / N; no warm-up. */
  schedule: z.enum(['linear', 'constant']).default('linear'),
  beta1: decay.default(0.9),
  beta2: decay.default(0.999),
  epsilon: z.number().gt(0).default(1e-8),
  weightDecay: nonNegative.default(0),
  maxGradNorm: z.number().gt(0).default(1),
});

const loraSection = z.strictObject({
  rank: count.default(16),
  alpha: z.number().gt(0).default(32),
  /** `all-linear` as PEFT resolves it, or names of linear layers such as `q_proj`. */
  targets: z.union([z.literal('all-linear'), z.array(z.string().min(1)).min(1)]).default('all-linear'),
  rslora: z.boolean().default(false),
});

const evaluationSection = z.strictObject({
  episodes: count.default(64),
  seeds: z.array(u32).min(1).default([42]),
  /** Also evaluate after every so many steps; null is before and after training only. */
  every: count.nullable().default(null),
});

export const runConfigSchema = z.strictObject({
  /** Folder of a Hugging Face checkpoint. */
  model: z.string().min(1),
  /** Folder of a PEFT adapter to start from; null starts a new one. */
  adapter: z.string().min(1).nullable().default(null),
  /** Folder of the run. */
  output: z.string().min(1),
  seed: u32.default(20261020),
  /** Optimizer steps. */
  steps: count.default(256),
  data: dataSection.prefault({}),
  /** The service of a `data.environment` that is not german. */
  service: ownServiceSection.optional(),
  generation: generationSection.prefault({}),
  grpo: grpoSection.prefault({}),
  optimizer: optimizerSection.prefault({}),
  lora: loraSection.prefault({}),
  kernels: z.strictObject({ family: z.enum(['portable', 'matrix']).default('portable') }).prefault({}),
  /** Run layers forward again in the backward pass instead of keeping activations: same bits, less memory. */
  recomputeActivations: z.boolean().default(false),
  checkpoints: z
    .strictObject({ every: count.default(64), keep: z.union([count, z.literal('all')]).default('all') })
    .prefault({}),
  evaluation: evaluationSection.prefault({}),
});

type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T;
export type RunConfig = DeepReadonly<z.infer<typeof runConfigSchema>>;

export interface ResolvedRunConfig {
  config: RunConfig;
  /** SHA-256 of the canonical JSON of the resolved config. */
  sha256: string;
}

function freezeDeep<T>(value: T): DeepReadonly<T> {
  if (value !== null && typeof value === 'object') {
    for (const member of Object.values(value)) freezeDeep(member);
    Object.freeze(value);
  }
  return value as DeepReadonly<T>;
}

/** Rules of the data and of the service that gives it. */
function dataContradictions({ data, service, grpo }: z.infer<typeof runConfigSchema>): string[] {
  const found: string[] = [];
  const { environment, tasks, count: episodes } = data;
  const german = environment === 'german';
  if (german && (tasks !== undefined || service !== undefined)) {
    const key = tasks !== undefined ? 'data.tasks' : 'service';
    found.push(
      `"${key}": found it beside data.environment german; wanted a protocol there, ${SERVICE_PROTOCOLS.join(' or ')}. ` +
        'Name the protocol, or leave the key out: the german task makes its own episodes, and `--env` says who serves it',
    );
  }
  if (!german && tasks === undefined) {
    found.push(`"data.tasks": found nothing; wanted the JSONL file of the ${environment} tasks. Add it`);
  }
  if (!german && service === undefined) {
    found.push(`"service": found nothing; wanted service.url or service.command of the ${environment} service. Add it`);
  }
  if (!german && service !== undefined) {
    const sessions = grpo.groupSize * grpo.groupsPerStep;
    for (const [key, value, wanted] of ownServiceContradictions(service, environment, sessions)) {
      found.push(`"${key}": found ${JSON.stringify(value)}; wanted ${wanted}. Correct the value`);
    }
  }
  if ((german || episodes > 0) && episodes < grpo.groupsPerStep) {
    found.push(
      `"data.count": found ${episodes}; wanted at least grpo.groupsPerStep, ${grpo.groupsPerStep}. ` +
        'Raise it or take fewer groups a step',
    );
  }
  return found;
}

/** Rules between fields, as [key path, found, wanted, remedy]. */
function contradictions(config: z.infer<typeof runConfigSchema>): string[] {
  const { grpo } = config;
  const found = dataContradictions(config);
  if (grpo.groupsPerStep % grpo.gradientAccumulation !== 0) {
    found.push(
      `"grpo.gradientAccumulation": found ${grpo.gradientAccumulation}; wanted a divisor of grpo.groupsPerStep, ` +
        `${grpo.groupsPerStep}. Change one of the two`,
    );
  }
  if (!grpo.loss.startsWith('dppo') && grpo.dppoDelta !== null) {
    found.push(
      `"grpo.dppoDelta": found ${grpo.dppoDelta}; wanted null with loss ${grpo.loss}, which has no such threshold. ` +
        'Leave it out or choose dppo_tv or dppo_kl',
    );
  }
  return found;
}

/** JSON is read as YAML too (it is a subset), because the YAML reader refuses a repeated key. */
function parseText(text: string, label: string): unknown {
  const document = parseDocument(text, { prettyErrors: true });
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) {
    throw new PlanError(
      'syntax',
      `reading ${label}: found ${problem.message.trimEnd()}\nwanted JSON or YAML 1.2. Correct that line.`,
    );
  }
  const value: unknown = document.toJS();
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    const found = value === null ? 'an empty document' : Array.isArray(value) ? 'a list' : JSON.stringify(value);
    throw new PlanError(
      'not-an-object',
      `reading ${label}: found ${found}; wanted keys with values. Give at least "model" and "output".`,
    );
  }
  return value;
}

/**
 * Reads a run configuration. `label` names the file in messages. Throws PlanError: syntax, not-an-object, unknown-key
 * (with the nearest known key), bad-value (with the path, the value found and what was wanted), contradiction. All
 * problems of a file are reported at once; the code is that of the first.
 */
export async function resolveRunConfig(text: string, label: string): Promise<ResolvedRunConfig> {
  const input = parseText(text, label);
  const parsed = runConfigSchema.safeParse(input);
  if (!parsed.success) {
    const problems = keyProblems(parsed.error, input, runConfigSchema);
    throw new PlanError(problems[0]!.code, `reading ${label}: ${problems.map(({ text: t }) => t).join('.\n')}.`);
  }
  const contradicted = contradictions(parsed.data);
  if (contradicted.length > 0) {
    throw new PlanError('contradiction', `reading ${label}: ${contradicted.join('.\n')}.`);
  }
  const config = freezeDeep(parsed.data);
  return { config, sha256: await sha256HexAsync(canonicalBytes(config)) };
}
