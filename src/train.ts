// The loop of a GRPO run: prompts, rollouts, audit, update, journal, checkpoint. Read this first.
// Not a plan and not a device: everything it touches is handed in. Departs from TRL: rollouts are audited before they are
// learnt from, and the old log-probs are the sampler's, which the audit shows to be the trainer's own bits.
// Invariant: a step is a function of (config, weights, step); a run that stops after any step and resumes ends in the
// same bytes as one that did not.
import type { EnvironmentPort, Task } from './environments/port.ts';
import { computeAdvantages } from './grpo/advantages.ts';
import { type MetricRow, stepMetrics } from './grpo/metrics.ts';
import { learningRate } from './grpo/schedule.ts';
import type { Recomputed, StepInput, Trainer } from './grpo/step.ts';
import type { Journal } from './journal.ts';
import { DROPPED_TOKENS, type JournalEvent, withoutTimings } from './journal-events.ts';
import { canonicalBytes } from './lib/canonical-json.ts';
import { type DataCursor, takePrompts } from './lib/data-order.ts';
import { AuditError, PlanError } from './lib/errors.ts';
import { sha256HexAsync } from './lib/sha256.ts';
import type { Storage } from './lib/storage.ts';
import type { Text } from './model/text.ts';
import { collect } from './rollout/collect.ts';
import { type Episode, episode as episodeSchema } from './rollout/episode.ts';
import { isTruncated } from './rollout/loss-mask.ts';
import type { MemberSpec, RolloutSettings } from './rollout/member.ts';
import type { TrainSequence } from './rollout/pack.ts';
import type { Sampler } from './rollout/sampler.ts';
import type { RunConfig } from './run-config.ts';

/** What an audit says of a step's rollouts, made by `policy` for `step`; any finding refuses the step. */
export type AuditRollouts = (
  episodes: readonly Episode[],
  tasks: ReadonlyMap<string, Task>,
  expected: { step: number; policy: string },
) => Promise<{ findings: string[]; duplicates: { rate: number } }>;

/** Compares recomputed log-probs of trained tokens with the sampled ones; returns findings. */
export type AuditLogprobs = (episodes: readonly Episode[], recomputed: readonly Float32Array[]) => string[];

export interface SealedState {
  step: number;
  cursor: DataCursor;
}

export interface StateDigests {
  adapter: string;
  optimizer: string;
}

export interface TrainPorts {
  storage: Storage;
  journal: Journal;
  trainer: Trainer;
  sampler: Sampler;
  text: Text;
  environment: EnvironmentPort;
  tasks: readonly Task[];
  invalidCallObservation: string;
  auditRollouts: AuditRollouts;
  auditLogprobs: AuditLogprobs;
  /**
   * SHA-256 of adapter and optimizer as they would be sealed, of the state as it is when this is called: they may be
   * hashed while rollouts are made.
   */
  digests(): Promise<StateDigests>;
  /** Seals a checkpoint after a completed step and journals it. */
  seal(state: SealedState): Promise<void>;
  /** Milliseconds, for durations only. */
  now: () => number;
  /** Asked once after every step: true stops the run with everything sealed. */
  shouldStop: (step: number) => boolean;
  onStep?: (step: number, metrics: Record<string, number>) => void;
  onRollout?: (step: number, finished: number, total: number) => void;
}

export const rolloutsFile = (step: number) => `rollouts/step-${String(step).padStart(6, '0')}.jsonl`;

/** The adapter's digest is not known yet when rollouts begin: it is written into them at their end. */
function rolloutSettings(config: RunConfig, ports: TrainPorts): RolloutSettings {
  const { temperature, maxCompletionTokens, maxToolRounds, enableThinking } = config.generation;
  const { invalidCallObservation } = ports;
  return { temperature, maxCompletionTokens, maxToolRounds, enableThinking, invalidCallObservation, policy: '' };
}

/** The members of a step's groups: group g is prompt g of the step, and every member has its own key. */
function stepSpecs(
  config: RunConfig,
  tasks: readonly Task[],
  indices: readonly number[],
  step: number,
): MemberSpec[][] {
  return indices.map((index, group) =>
    Array.from({ length: config.grpo.groupSize }, (_, member) => ({
      task: tasks[index]!,
      step,
      group,
      member,
      seed: config.seed,
    })),
  );
}

async function writeRollouts(storage: Storage, file: string, episodes: readonly Episode[]) {
  const bytes = new TextEncoder().encode(episodes.map((episode) => `${JSON.stringify(episode)}\n`).join(''));
  await storage.write(file, bytes);
  return {
    file,
    sha256: await sha256HexAsync(bytes),
    evidenceSha256: await sha256HexAsync(canonicalBytes(episodes.map(withoutTimings))),
  };
}

/** The rollouts of an earlier step, checked against the journal: a batch that is used more than once. */
async function readRollouts(
  ports: TrainPorts,
  step: number,
): Promise<{ episodes: Episode[]; reference: Awaited<ReturnType<typeof writeRollouts>> }> {
  const entry = ports.journal.entries.findLast((e) => e.kind === 'step' && e.data.step === step);
  if (entry?.kind !== 'step')
    throw new PlanError(
      'no-rollouts',
      `resuming: the journal has no step ${step}, whose rollouts are needed. Start anew.`,
    );
  const bytes = await ports.storage.read(entry.data.rollouts.file);
  const found = await sha256HexAsync(bytes);
  if (found !== entry.data.rollouts.sha256) {
    const message = `resuming: ${entry.data.rollouts.file} has SHA-256 ${found}, the journal says ${entry.data.rollouts.sha256}. Restore the file.`;
    throw new AuditError('rollouts-changed', message);
  }
  const lines = new TextDecoder().decode(bytes).trim().split('\n');
  return { episodes: lines.map((line) => episodeSchema.parse(JSON.parse(line))), reference: entry.data.rollouts };
}

function trainSequence(episode: Episode, advantage: number): TrainSequence {
  return {
    ids: episode.ids,
    mask: episode.mask,
    sampled: episode.logprobs,
    advantage,
    truncated: isTruncated(episode),
  };
}

function metricRow(episode: Episode): MetricRow {
  const calls = episode.turns.flatMap((turn) => turn.calls);
  const { verdict } = episode;
  return {
    promptTokens: episode.promptLength,
    sampledTokens: episode.mask.reduce((sum: number, bit) => sum + bit, 0),
    terminated: !isTruncated(episode),
    capped: episode.capped,
    toolCalls: calls.length,
    toolFailures: calls.filter((call) => call.status !== 'ok' || call.environmentError).length,
    rewards: { shaped: verdict?.reward ?? null, strict: verdict ? Number(verdict.strict) : null },
    reward: verdict?.reward ?? null,
  };
}

/**
 * What a step trains on: the sequences by group with their advantages, and the settings of the update. A function of
 * the configuration, the rollouts and the step alone; `trainedOn` are the episodes in the order of the sequences.
 */
export function stepInput(
  { grpo, optimizer, steps }: RunConfig,
  episodes: readonly Episode[],
  step: number,
): { input: StepInput; trainedOn: Episode[] } {
  const { advantages } = computeAdvantages(
    episodes.map((episode) => [episode.verdict?.reward ?? null]),
    { groupSize: grpo.groupSize, scale: grpo.scaleRewards },
  );
  const scored = episodes
    .map((episode, i) => ({ episode, sequence: trainSequence(episode, advantages[i]!) }))
    .filter(({ episode }) => episode.verdict);
  const groups = Array.from({ length: grpo.groupsPerStep }, (_, g) =>
    scored.filter(({ episode }) => episode.group === g).map(({ sequence }) => sequence),
  );
  const schedule = { kind: optimizer.schedule, base: optimizer.learningRate, totalSteps: steps };
  const input: StepInput = {
    groups,
    update: step,
    learningRate: learningRate(step, schedule),
    old: 'sampled',
    accumulation: grpo.gradientAccumulation,
  };
  return { input, trainedOn: scored.map(({ episode }) => episode) };
}

const finite = (metrics: Record<string, number | null>) =>
  Object.fromEntries(Object.entries(metrics).filter((entry): entry is [string, number] => entry[1] !== null));

const seconds = (from: number, to: number) => Math.round(to - from) / 1000;

/**
 * Trains from `start` (the state of a checkpoint, or step 0) to the last step, or until asked to stop. Returns what was
 * reached, with the SHA-256 of its adapter.
 * @throws AuditError `audit-failed` for rollouts with findings; nothing of that step is kept.
 */
export async function train(
  config: RunConfig,
  ports: TrainPorts,
  start: SealedState,
): Promise<SealedState & Pick<StateDigests, 'adapter'>> {
  const { grpo, steps } = config;
  const tasks = new Map(ports.tasks.map((task) => [task.id, task]));
  let { cursor } = start;
  let batch: { episodes: Episode[]; reference: Awaited<ReturnType<typeof writeRollouts>> } | null = null;
  // Members that repeat another member of their group: a sign of seeds that do not differ.
  let duplicateRate = 0;
  let droppedTokens = 0;
  let tokens = tokensUntil(ports.journal, start.step);
  // The digest of the adapter as it is, known when the last step is on record: digests and record are made beside the
  // next step's rollouts.
  let policy = handled(ports.digests().then(({ adapter }) => adapter));

  /** A step's rollouts, as they are drawn: of no policy yet. */
  async function draw(step: number): Promise<Episode[]> {
    const taken = takePrompts(config.seed, ports.tasks.length, cursor, grpo.groupsPerStep);
    cursor = taken.cursor;
    ports.sampler.use(ports.trainer.adapter);
    droppedTokens = 0;
    const groups = await collect(stepSpecs(config, ports.tasks, taken.indices, step), rolloutSettings(config, ports), {
      ...ports,
      onProgress: (finished, total) => ports.onRollout?.(step, finished, total),
      onDropped: (count) => {
        droppedTokens += count;
      },
    });
    return groups.flat();
  }

  try {
    for (let step = start.step + 1; step <= steps; step++) {
      const began = ports.now();
      const firstUse = step - ((step - 1) % grpo.numIterations);
      const drawn = firstUse === step ? await draw(step) : null;
      const drawnBy = await policy;
      if (drawn) {
        const episodes = drawn.map((episode) => ({ ...episode, policy: drawnBy }));
        batch = { episodes, reference: { file: '', sha256: '', evidenceSha256: '' } };
      } else batch ??= await readRollouts(ports, firstUse);
      const { episodes } = batch;
      const rolledOut = ports.now();
      if (firstUse === step) {
        const audit = await ports.auditRollouts(episodes, tasks, { step, policy: drawnBy });
        await journalRefusal(ports.journal, step, episodes.length, audit.findings);
        refuse(step, audit.findings);
        duplicateRate = audit.duplicates.rate;
        batch.reference = await writeRollouts(ports.storage, rolloutsFile(step), episodes);
      }
      const audited = ports.now();
      const { input, trainedOn } = stepInput(config, episodes, step);
      let differing: string[] = [];
      const result = await ports.trainer
        .step({
          ...input,
          beforeUpdate: (recomputed) => {
            if (firstUse !== step) return;
            differing = ports.auditLogprobs(trainedOn, bySequence(recomputed));
            refuse(step, differing);
          },
        })
        .catch(async (error: unknown) => {
          await journalRefusal(ports.journal, step, episodes.length, differing);
          throw error;
        });
      const trained = ports.now();
      const digests = ports.digests();
      const rowMetrics = stepMetrics(episodes.map(metricRow), {
        groupSize: grpo.groupSize,
        scale: grpo.scaleRewards,
        tokensBefore: tokens,
        tools: true,
      });
      tokens = rowMetrics['num_tokens'] ?? tokens;
      const metrics = {
        ...finite(rowMetrics),
        ...result.metrics,
        'completions/duplicate_rate': duplicateRate,
        // A batch that is used again was drawn once.
        [DROPPED_TOKENS]: firstUse === step ? droppedTokens : 0,
        step_time: seconds(began, trained),
      };
      policy = handled(
        recordStep(ports, digests, episodes.length, {
          step,
          metrics,
          rollouts: batch.reference,
          seconds: {
            rollout: seconds(began, rolledOut),
            audit: seconds(rolledOut, audited),
            train: seconds(audited, trained),
          },
        }),
      );
      const stop = ports.shouldStop(step);
      if (step % config.checkpoints.every === 0 || step === steps || stop) {
        await policy;
        await ports.seal({ step, cursor });
      }
      if (stop) return { step, cursor, adapter: await policy };
    }
    return { step: steps, cursor, adapter: await policy };
  } catch (error) {
    // What a later step fails of must not keep a completed one from its record.
    await policy.catch(() => {});
    throw error;
  }
}

/** A promise that is awaited later: until then its failure is no unhandled one. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

type StepRecord = Extract<JournalEvent, { kind: 'step' }>['data'];

/** Journals a completed step as soon as its digests are known. Returns the adapter's. */
async function recordStep(
  { journal, onStep }: TrainPorts,
  digests: Promise<StateDigests>,
  rollouts: number,
  { step, metrics, ...rest }: Omit<StepRecord, 'adapterSha256' | 'optimizerSha256'>,
): Promise<string> {
  const { adapter, optimizer } = await digests;
  await journal.append({ kind: 'audit', data: { step, rollouts, findings: [] } });
  await journal.append({
    kind: 'step',
    data: { step, metrics, adapterSha256: adapter, optimizerSha256: optimizer, ...rest },
  });
  onStep?.(step, metrics);
  return adapter;
}

/** `num_tokens` after a completed step, so that a resumed run counts on. */
function tokensUntil(journal: Journal, step: number): number {
  const entry = journal.entries.findLast((e) => e.kind === 'step' && e.data.step === step);
  return entry?.kind === 'step' ? (entry.data.metrics['num_tokens'] ?? 0) : 0;
}

/** A refused step stays on record with what was found; the step itself is never journalled. */
async function journalRefusal(journal: Journal, step: number, rollouts: number, findings: string[]): Promise<void> {
  if (findings.length > 0) await journal.append({ kind: 'audit', data: { step, rollouts, findings } });
}

function refuse(step: number, findings: readonly string[]): void {
  if (findings.length === 0) return;
  const shown = findings.slice(0, 3).join('; ');
  throw new AuditError(
    'audit-failed',
    `auditing step ${step}: ${findings.length} findings; a rollout must have none to be trained on. First: ${shown}. ` +
      'Nothing was trained on; resume from the last checkpoint.',
  );
}

/** Recomputed log-probs by sequence, in the order of the groups and their members. */
function bySequence(recomputed: readonly Recomputed[]): Float32Array[] {
  return recomputed.flatMap(({ batches, logprobs }) =>
    batches.flatMap((micro, m) =>
      micro.inputs.map((_, s) => logprobs[m]!.slice(micro.starts[s]!, micro.starts[s + 1]!)),
    ),
  );
}
