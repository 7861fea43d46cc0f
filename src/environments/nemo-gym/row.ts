// NeMo Gym dataset rows: the prompt and the tools of `responses_create_params`, and nothing else of the row.
// Not a validator of verifier columns. Invariant: a column outside responses_create_params never reaches a message; a
// tool name that is a route of the protocol, or no single path segment, is refused.
import { z } from 'zod';
import { EnvError } from '../../lib/errors.ts';
import { pathText, shownValue, valueAt } from '../../lib/zod-issues.ts';
import type { Message, ToolSpec } from '../port.ts';

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

/** What is wrong with a field, and what was wanted. */
function fieldProblem(issue: z.core.$ZodIssue, row: unknown): [found: string, wanted: string] {
  const at = (path: readonly PropertyKey[]) => `"${pathText(path)}": found ${shownValue(valueAt(row, path))}`;
  const input = valueAt(row, ['responses_create_params', 'input']);
  if (!pathText(issue.path).endsWith('.input') || !Array.isArray(input)) {
    return [at(issue.path), `a NeMo Gym row with responses_create_params (${issue.message})`];
  }
  // A list has one wrong item; histories with calls would have to be rendered as turns that the policy never sampled.
  const wrong = input.findIndex((entry) => !item.safeParse(entry).success);
  return [
    at([...issue.path, Math.max(wrong, 0)]),
    'messages with role and text alone, without calls and their results',
  ];
}

/** Reads a row. `developer` counts as `system`. Throws EnvError `bad-task` naming row and field. */
export function readRow(taskId: string, value: unknown): RowPrompt {
  const parsed = row.safeParse(value);
  if (!parsed.success) bad(taskId, ...fieldProblem(parsed.error.issues[0]!, value));
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
