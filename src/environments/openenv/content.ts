// Texts out of OpenEnv's observations: the prompt of a reset, the content of a tool's result, the tools of a session.
// Not a parser of actions. Invariant: an observation's text is a function of the frame alone, with its numbers as sent.
import { z } from 'zod';
import type { Message, Observation, ToolSpec } from '../port.ts';
import { fault } from '../service/faults.ts';
import { emitWireJson, parseWireJson, type WireMap } from '../service/wire-json.ts';

const message = z.object({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() });
export const messageList = z.array(message);

const listed = z.looseObject({
  name: z.string().min(1),
  description: z.string().nullish(),
  input_schema: z.record(z.string(), z.unknown()).optional(),
  inputSchema: z.record(z.string(), z.unknown()).optional(),
});

/** The `observation` of a frame's text, as compact JSON. Newer servers put metadata in it, which is not the model's. */
export function observationJson(raw: string): string {
  const data = (parseWireJson(raw) as WireMap).get('data') as WireMap;
  const observation = new Map(data.get('observation') as WireMap);
  observation.delete('metadata');
  return emitWireJson(observation);
}

/** Observation fields that hold a prompt as text, in this order. */
const TEXT_FIELDS = ['prompt', 'message', 'text', 'observation'] as const;

/**
 * The prompt after a reset: the task's own messages, then the observation's `messages`, or its text as a user message,
 * or all of it as JSON. An empty observation adds nothing.
 */
export function promptMessages(own: readonly Message[], observation: Record<string, unknown>, raw: string): Message[] {
  const list = messageList.safeParse(observation['messages']);
  if (list.success) return [...own, ...list.data];
  for (const field of TEXT_FIELDS) {
    const text = observation[field];
    if (typeof text === 'string' && text !== '') return [...own, { role: 'user', content: text }];
  }
  if (Object.keys(observation).every((key) => key === 'metadata')) return [...own];
  return [...own, { role: 'user', content: observationJson(raw) }];
}

/** The tools of a list_tools observation; both spellings of the schema's key are read. */
export function readTools(doing: string, observation: Record<string, unknown>): ToolSpec[] {
  const parsed = z.array(listed).min(1).safeParse(observation['tools']);
  if (!parsed.success) {
    const found = `its tools do not read (${parsed.error.issues[0]?.message ?? 'malformed'})`;
    throw fault('service-protocol', { doing, found, wanted: 'a list of name, description and input_schema' });
  }
  return parsed.data.map(({ name, description, input_schema, inputSchema }) => ({
    type: 'function',
    function: { name, description: description ?? '', parameters: input_schema ?? inputSchema ?? { type: 'object' } },
  }));
}

const toolResult = z.looseObject({
  tool_name: z.string(),
  result: z.unknown().optional(),
  error: z.looseObject({ error_type: z.string(), message: z.string() }).nullish(),
});

/** What a tool gave: its text, and the value that the text was made of. */
export interface ToolResult extends Observation {
  value: unknown;
}

const asText = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

/** `.data`, else `structured_content.result`, else the texts of `content`, as the upstream client unwraps it. */
function unwrap(result: unknown): unknown {
  if (typeof result !== 'object' || result === null) return result;
  const { data, structured_content, structuredContent, content } = result as Record<string, unknown>;
  if (data !== undefined && data !== null) return data;
  const structured = (structured_content ?? structuredContent) as Record<string, unknown> | null | undefined;
  if (structured && 'result' in structured) return structured['result'];
  if (!Array.isArray(content)) return result;
  return content.map((part: { text?: unknown }) => (typeof part?.text === 'string' ? part.text : '')).join('');
}

/**
 * Reads a call_tool observation. A tool that failed is an observation with `error`. Throws a fault where the reply is
 * of another tool, or says that the environment behind it is gone.
 */
export function readToolResult(doing: string, tool: string, observation: Record<string, unknown>): ToolResult {
  const parsed = toolResult.safeParse(observation);
  if (!parsed.success || parsed.data.tool_name !== tool) {
    const found = parsed.success ? `the result of ${parsed.data.tool_name}` : 'an observation without tool_name';
    throw fault('service-protocol', { doing, found, wanted: `the result of ${tool}` });
  }
  const { error, result } = parsed.data;
  if (!error) {
    const value = unwrap(result);
    const failed = (result as { is_error?: unknown } | null)?.is_error === true;
    return { content: asText(value ?? null), error: failed, value };
  }
  if (error.error_type === 'transport_error' || /environment is closed/.test(error.message)) {
    throw fault('service-lost', {
      doing,
      found: `${error.error_type}: ${error.message}`,
      wanted: 'a live environment',
    });
  }
  return { content: error.message, error: true, value: null };
}

/** The tool that stands for an environment without MCP: its action is the arguments. */
export const ACTION_TOOL = 'act';

/** An action's JSON Schema as a tool; `metadata` is not the model's. */
export function actionTool(schema: Record<string, unknown>): ToolSpec {
  const { title: _title, description, ...parameters } = schema;
  const properties = { ...(parameters['properties'] as Record<string, unknown> | undefined) };
  delete properties['metadata'];
  return {
    type: 'function',
    function: {
      name: ACTION_TOOL,
      description: typeof description === 'string' ? description : 'Takes one action in the environment.',
      parameters: { ...parameters, properties },
    },
  };
}
