// Generators of German lookup/calculator tasks for TRAIN, DEV and the final assessment, and the task's prompt.
// Not a stream: the n-th task of (split, seed) is a pure function of its index and the tasks before it.
// Invariant: an operand pair with its two values belongs to exactly one split, whatever the seeds, so no episode of one
// split can occur in another; the table never reaches the prompt.
import { z } from 'zod';
import { EnvError, PlanError } from '../lib/errors.ts';
import { permutation, philox4x32, streamWords } from '../lib/rng.ts';
import {
  ANSWER_REQUEST,
  GOODS,
  INSTRUCTIONS,
  MAX_VALUE,
  MIN_VALUE,
  OPERAND_PAIRS,
  OPERATIONS,
  SYSTEM_PROMPT,
  TEMPLATE_COUNT,
} from './german-data.ts';
import type { Message, Task } from './port.ts';

export const SPLITS = ['train', 'dev', 'final'] as const;
export type Split = (typeof SPLITS)[number];

/** Stream of the pairs' order: this + split * 2^20 + block of 80 tasks ('G' in the top byte). */
const PAIR_STREAM_BASE = 0x47000000;
/** Stream of a task's draws: this + split; index = task * 2^16 + attempt * 4 + block ('H' in the top byte). */
const DRAW_STREAM_BASE = 0x48000000;
/** Key of the hash that assigns (pair, left value, right value) to a split: 'Germ', 'anSp' in ASCII. */
const SPLIT_KEY = [0x4765726d, 0x616e5370] as const;
/** More tasks of one call would exhaust the values of DEV; the generators refuse. */
const MAX_TASKS = 50_000;

const value = z.int().min(MIN_VALUE).max(MAX_VALUE);

/** What a task of this environment carries; the table is the answer key. */
export const germanPayload = z.strictObject({
  schema: z.literal('shaderl.german/1'),
  split: z.enum(SPLITS),
  /** Index into OPERAND_PAIRS. */
  pair: z
    .int()
    .min(0)
    .max(OPERAND_PAIRS.length - 1),
  /** Index into INSTRUCTIONS[operation]. */
  template: z
    .int()
    .min(0)
    .max(TEMPLATE_COUNT - 1),
  operation: z.enum(OPERATIONS),
  left: z.enum(GOODS),
  right: z.enum(GOODS),
  /** This episode's value of each good. */
  table: z.record(z.enum(GOODS), value),
});
export type GermanPayload = z.infer<typeof germanPayload>;

/** The payload of a task, checked; throws EnvError `bad-task` naming the task and the field. */
export function readPayload(task: Task): GermanPayload {
  const parsed = germanPayload.safeParse(task.payload);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new EnvError(
      'bad-task',
      `reading task ${task.id}: payload.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'malformed'}; ` +
        'a payload of schema shaderl.german/1 is wanted. Generate the tasks with trainTasks, devTasks or finalTasks.',
    );
  }
  const [left, right] = OPERAND_PAIRS[parsed.data.pair]!;
  if (left !== parsed.data.left || right !== parsed.data.right) {
    throw new EnvError(
      'bad-task',
      `reading task ${task.id}: pair ${parsed.data.pair} is (${left}, ${right}), the payload names ` +
        `(${parsed.data.left}, ${parsed.data.right}); they must agree. Generate the tasks anew.`,
    );
  }
  return parsed.data;
}

/** Which split owns a pair with its two values: 5/8 TRAIN, 1/8 DEV, 2/8 final, by word 0 of one Philox block. */
export function splitOf(pair: number, leftValue: number, rightValue: number): Split {
  const eighth = philox4x32([pair, leftValue, rightValue, 0], SPLIT_KEY)[0] >>> 29;
  return eighth < 5 ? 'train' : eighth < 6 ? 'dev' : 'final';
}

/** A word as an integer in [0, n): n is tiny, so the bias of the remainder is below n * 2^-32. */
function below(word: number, n: number): number {
  return word % n;
}

function drawTask(split: Split, seed: number, index: number, pair: number, seen: Set<string>): Task {
  const [left, right] = OPERAND_PAIRS[pair]!;
  const stream = DRAW_STREAM_BASE + SPLITS.indexOf(split);
  // At least 1/8 of 9604 value pairs belongs to each split, so that thousands of attempts never fail in practice.
  for (let attempt = 0; attempt < 2 ** 14; attempt++) {
    const words = [0, 1, 2].flatMap((block) => streamWords(seed, stream, index * 2 ** 16 + attempt * 4 + block));
    const table = Object.fromEntries(
      GOODS.map((good, i) => [good, MIN_VALUE + below(words[i]!, MAX_VALUE - MIN_VALUE + 1)]),
    ) as GermanPayload['table'];
    if (splitOf(pair, table[left], table[right]) !== split) continue;
    const instance = `${pair}:${table[left]}:${table[right]}`;
    if (seen.has(instance)) continue;
    seen.add(instance);
    const payload: GermanPayload = {
      schema: 'shaderl.german/1',
      split,
      pair,
      template: below(words[11]!, TEMPLATE_COUNT),
      operation: OPERATIONS[below(words[10]!, OPERATIONS.length)]!,
      left,
      right,
      table,
    };
    return { id: `german-${split}-${seed}-${String(index).padStart(6, '0')}`, payload };
  }
  throw new PlanError(
    'tasks-exhausted',
    `generating ${split} task ${index} (seed ${seed}): no unused values of ${left} and ${right} found. Ask for fewer.`,
  );
}

function generate(split: Split, seed: number, count: number): Task[] {
  if (!(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32)) {
    throw new PlanError('bad-seed', `generating ${split} tasks: seed is ${seed}; use an integer in [0, 2^32).`);
  }
  if (!(Number.isInteger(count) && count >= 0 && count <= MAX_TASKS)) {
    throw new PlanError(
      'bad-count',
      `generating ${split} tasks: count is ${count}; use an integer in 0..${MAX_TASKS}.`,
    );
  }
  const seen = new Set<string>();
  const tasks: Task[] = [];
  const pairs = OPERAND_PAIRS.length;
  let order: number[] = [];
  for (let index = 0; index < count; index++) {
    const block = Math.floor(index / pairs);
    // Each block of 80 tasks visits every operand pair once, in its own order.
    if (index % pairs === 0) {
      order = permutation(seed, PAIR_STREAM_BASE + SPLITS.indexOf(split) * 2 ** 20 + block, pairs);
    }
    tasks.push(drawTask(split, seed, index, order[index % pairs]!, seen));
  }
  return tasks;
}

/**
 * `count` TRAIN tasks of `seed` (u32). A shorter call gives a prefix of a longer one; a pair with its values occurs once.
 * Throws PlanError on a bad seed or count.
 */
export function trainTasks(seed: number, count: number): Task[] {
  return generate('train', seed, count);
}

/** DEV tasks; as `trainTasks`, and disjoint from it and from `finalTasks` for all seeds. */
export function devTasks(seed: number, count: number): Task[] {
  return generate('dev', seed, count);
}

/** Tasks of the final assessment; as `trainTasks`, and disjoint from it and from `devTasks` for all seeds. */
export function finalTasks(seed: number, count: number): Task[] {
  return generate('final', seed, count);
}

/** The instruction in German, e.g. "Ziehe Brot von Apfel ab." */
export function instructionOf(payload: GermanPayload): string {
  const template = INSTRUCTIONS[payload.operation][payload.template]!;
  return template.replace('{a}', payload.left).replace('{b}', payload.right);
}

/** The prompt: one system line, one user line. */
export function promptOf(payload: GermanPayload): Message[] {
  return [
    { role: 'system', content: SYSTEM_PROMPT },
    { role: 'user', content: `${instructionOf(payload)} ${ANSWER_REQUEST}` },
  ];
}
