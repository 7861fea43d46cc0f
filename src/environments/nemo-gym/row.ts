// NeMo Gym dataset rows: the prompt and the tools of `responses_create_params`, and nothing else of the row.
// Not a validator of verifier columns. Invariant: a column outside responses_create_params never reaches a message; a
// tool name that is a route of the protocol, or no single path segment, is refused.
import { z } from 'zod';
import { EnvError, PlanError } from '../../lib/errors.ts';
import type { Message, Task, ToolSpec } from '../port.ts';

const textPart = z.looseObject({ text: z.string() });
const item = z.looseObject({
  role: z.enum(['user', 'assistant', 'system', 'developer']),
  content: z.union([z.string(), z.array(textPart)]),
  type: z.literal('message').optional(),
});
const tool = z.looseObject({
  type: z.literal('function'),
  name: z.string(),
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
});
const row = z.looseObject({
  responses_create_params: z.looseObject({
    input: z.union([z.string(), z.array(item)]),
    instructions: z.string().nullish(),
    tools: z.array(tool).nullish(),
  }),
});
export type NemoGymRow = z.infer<typeof row>;

/** Routes of resources and Gymnasium servers, which no tool may be called. */
export const RESERVED_NAMES: ReadonlySet<string> = new Set([
  'verify',
  'seed_session',
  'aggregate_metrics',
  'mcp',
  'close_session',
  'reverify_mode',
  'reset',
  'step',
  'close',
  'run',
  'ng-rollout',
]);

/** What a rollout needs of a row. */
export interface RowPrompt {
  row: NemoGymRow;
  messages: Message[];
  tools: ToolSpec[];
}

const textOf = (content: string | { text: string }[]): string =>
  typeof content === 'string' ? content : content.map((part) => part.text).join('');

function bad(taskId: string, found: string, wanted: string): never {
  throw new EnvError('bad-task', `reading row ${taskId}: ${found}; ${wanted} is wanted. Correct the dataset.`);
}

/** Reads a row. `developer` counts as `system`. Throws EnvError `bad-task` naming row and field. */
export function readRow(taskId: string, value: unknown): RowPrompt {
  const parsed = row.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0]!;
    bad(taskId, `${issue.path.join('.')}: ${issue.message}`, 'a NeMo Gym row with responses_create_params');
  }
  const { input, instructions, tools } = parsed.data.responses_create_params;
  const messages: Message[] = instructions ? [{ role: 'system', content: instructions }] : [];
  if (typeof input === 'string') messages.push({ role: 'user', content: input });
  else {
    for (const { role, content } of input) {
      messages.push({ role: role === 'developer' ? 'system' : role, content: textOf(content) });
    }
  }
  const names = new Set<string>();
  const specs = (tools ?? []).map(({ name, description, parameters }): ToolSpec => {
    if (RESERVED_NAMES.has(name)) bad(taskId, `tool "${name}" is a route of the protocol`, 'another name');
    if (!/^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/.test(name)) bad(taskId, `tool name "${name}"`, 'one path segment');
    if (names.has(name)) bad(taskId, `tool "${name}" twice`, 'each name once');
    names.add(name);
    return {
      type: 'function',
      function: { name, description: description ?? '', parameters: parameters ?? { type: 'object', properties: {} } },
    };
  });
  return { row: parsed.data, messages, tools: specs };
}

/**
 * Tasks of a JSONL dataset; ids are `<name>:<line>`, or `<name>:<_ng_task_index>` where rows have one. Throws PlanError
 * naming file and line.
 */
export function nemoGymTasks(name: string, text: string): Task[] {
  const tasks: Task[] = [];
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    try {
      const payload = JSON.parse(line) as Record<string, unknown>;
      const index = payload['_ng_task_index'];
      const id = `${name}:${typeof index === 'number' ? index : i + 1}`;
      readRow(id, payload);
      tasks.push({ id, payload });
    } catch (error) {
      const found = error instanceof Error ? error.message : String(error);
      throw new PlanError('bad-row', `reading ${name}, line ${i + 1}: ${found} One JSON row on each line is wanted.`);
    }
  }
  return tasks;
}
