// The Responses object that a verifier sees: the calls, their outputs and the final message of one rollout, in order.
// Not a transcript of tokens. Invariant: it holds what was dispatched and nothing of the input; the same rollout gives
// the same bytes.
import type { ServerLogEntry } from '../../rollout/episode.ts';

export type OutputItem = Record<string, unknown>;

export const callId = (index: number): string => `call_${index + 1}`;

export const callItem = (index: number, tool: string, argumentsJson: string): OutputItem => ({
  type: 'function_call',
  call_id: callId(index),
  id: `fc_${index + 1}`,
  name: tool,
  arguments: argumentsJson,
  status: 'completed',
});

export const messageItem = (text: string): OutputItem => ({
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text, annotations: [] }],
});

/** A call and its output for each entry. */
export function logItems(log: readonly Pick<ServerLogEntry, 'tool' | 'argumentsJson' | 'observation'>[]): OutputItem[] {
  return log.flatMap(({ tool, argumentsJson, observation }, i) => [
    callItem(i, tool, argumentsJson),
    { type: 'function_call_output', call_id: callId(i), output: observation },
  ]);
}

/**
 * The object. Usage is left out, because the client does not count the service's tokens. `invalidDispatches` travels as
 * metadata, the only place for it that every server accepts.
 */
export function makeResponse(id: string, tools: unknown, output: OutputItem[], invalidDispatches: number): OutputItem {
  return {
    id: `resp_${id}`,
    created_at: 0,
    model: 'shaderl',
    object: 'response',
    output,
    parallel_tool_calls: true,
    tool_choice: 'auto',
    tools: Array.isArray(tools) ? tools : [],
    status: 'completed',
    metadata: { invalid_dispatches: String(invalidDispatches) },
  };
}
