// The data that a plan freezes, made from its recipe: agent episodes, math items, the training schedule.
// Not the files: prepare writes them, preflight makes them again and compares. Invariant: a pure function of the recipe
// and of the math items that were given.
import { f32BitsHex } from '../checkpoint-state.ts';
import { devTasks, finalTasks, promptOf, readPayload, trainTasks } from '../environments/german-task.ts';
import type { Task } from '../environments/port.ts';
import type { MathItem } from '../evaluate.ts';
import { learningRate } from '../grpo/schedule.ts';
import { canonicalBytes, canonicalJson } from '../lib/canonical-json.ts';
import { type DataCursor, takePrompts } from '../lib/data-order.ts';
import { PlanError } from '../lib/errors.ts';
import { permutation } from '../lib/rng.ts';
import type { AgentInstance } from './disjoint.ts';
import type { Recipe } from './recipe.ts';

/** Stream of the choice of math items and of inspected items ('X' in the top byte). */
const CHOICE_STREAM = 0x58000000;

/** Files under data/, by their names in the plan. */
export const DATA_FILES = {
  train: 'data/train.jsonl',
  dev: 'data/dev.jsonl',
  final: 'data/final.jsonl',
  mathDev: 'data/math-dev.jsonl',
  mgsm: 'data/mgsm.jsonl',
  schedule: 'data/schedule.jsonl',
} as const;
export type DataName = keyof typeof DATA_FILES;

export interface ScheduledStep {
  step: number;
  /** Ids of the TRAIN episodes, one a group. */
  episodes: string[];
  /** f32 bits, 8 hex digits. */
  learningRateBits: string;
}

export interface ExperimentData {
  train: Task[];
  dev: Task[];
  final: Task[];
  mathDev: MathItem[];
  mgsm: MathItem[];
  schedule: ScheduledStep[];
}

/** The prompts and learning rate of every step, as the training loop takes them. */
function scheduleOf({ training }: Recipe, train: readonly Task[]): ScheduledStep[] {
  const { steps, grpo, seed, data, optimizer } = training;
  const rates = { kind: optimizer.schedule, base: optimizer.learningRate, totalSteps: steps };
  let cursor: DataCursor = { epoch: 0, index: 0 };
  let indices: number[] = [];
  return Array.from({ length: steps }, (_, i) => {
    if (i % grpo.numIterations === 0) ({ indices, cursor } = takePrompts(seed, data.count, cursor, grpo.groupsPerStep));
    const episodes = indices.map((index) => train[index]!.id);
    return { step: i + 1, episodes, learningRateBits: f32BitsHex(learningRate(i + 1, rates)) };
  });
}

/** `take` items of a list by a seeded permutation, in the order of the list. */
export function choose<T>(items: readonly T[], take: number, seed: number): T[] {
  const chosen = permutation(seed, CHOICE_STREAM, items.length).slice(0, take);
  return chosen.sort((a, b) => a - b).map((index) => items[index]!);
}

/**
 * All data of a recipe. `mathDev` and `mgsm` are the items of the given files. Throws PlanError `too-few-items` naming
 * the file by `labels`.
 */
export function experimentData(
  recipe: Recipe,
  given: { mathDev: readonly MathItem[]; mgsm: readonly MathItem[] },
  labels: { mathDev: string; mgsm: string },
): ExperimentData {
  const { training, dev, final, retention } = recipe;
  const { seeds, count } = training.data;
  const refuse = (label: string, found: number, wanted: string, key: string) =>
    new PlanError(
      'too-few-items',
      `reading ${label}: found ${found} items; wanted ${wanted}. Give the whole file, or change ${key} in the recipe.`,
    );
  if (given.mathDev.length < dev.mathItems) {
    throw refuse(labels.mathDev, given.mathDev.length, `at least ${dev.mathItems}`, 'dev.mathItems');
  }
  if (given.mgsm.length !== retention.items) {
    throw refuse(labels.mgsm, given.mgsm.length, `${retention.items}`, 'retention.items');
  }
  const train = trainTasks(seeds.train, count);
  return {
    train,
    dev: devTasks(seeds.dev, dev.episodes),
    final: finalTasks(seeds.final, final.episodes),
    mathDev: choose(given.mathDev, dev.mathItems, dev.seed),
    mgsm: [...given.mgsm],
    schedule: scheduleOf(recipe, train),
  };
}

/** The bytes of a data file: one canonical JSON value a line. */
export function dataBytes(items: readonly unknown[]): Uint8Array {
  return new TextEncoder().encode(items.map((item) => `${canonicalJson(item)}\n`).join(''));
}

/** What an evaluation's `dataSha256` is taken over. */
export function dataIdentity(items: readonly unknown[]): Uint8Array {
  return canonicalBytes(items);
}

/** What makes agent episodes the same: operands and values. */
export function agentInstances(tasks: readonly Task[]): AgentInstance[] {
  return tasks.map((task) => {
    const payload = readPayload(task);
    const { pair, table, left, right } = payload;
    const prompt = promptOf(payload).map(({ content }) => content);
    return { id: task.id, instance: `${pair}:${table[left]}:${table[right]}`, prompt: prompt.join('\n') };
  });
}

/** The items that somebody looks at after the run: the first `inspection.items` of a seeded choice. */
export function inspectedIds(
  { inspection }: Recipe,
  data: ExperimentData,
): { seed: number; agent: string[]; mgsm: string[] } {
  const ids = (items: readonly { id: string }[]) =>
    choose(items, inspection.items, inspection.seed).map(({ id }) => id);
  return { seed: inspection.seed, agent: ids(data.final), mgsm: ids(data.mgsm) };
}
