// Answers of /v1/responses.
// Not a stored object: nothing is kept. Invariant: the token ids of the turn stand on its last output item, all three
// lists or none, as NeMo Gym reads them.
import type { Text } from '../model/text.ts';
import type { Answer } from './answer.ts';
import { logprobEntries, type ReplyHead, tokenBundle } from './chat-reply.ts';
import type { ResponsesRequest } from './responses-request.ts';

function outputItems(id: string, answer: Answer, request: ResponsesRequest, text: Text): Record<string, unknown>[] {
  const status = answer.finish === 'length' ? 'incomplete' : 'completed';
  const items: Record<string, unknown>[] = [];
  if (answer.reasoning !== null && answer.reasoning !== '') {
    const content = [{ type: 'reasoning_text', text: answer.reasoning }];
    items.push({ type: 'reasoning', id: `rs_${id}`, summary: [], content, status });
  }
  if (answer.content !== '' || answer.calls.length === 0) {
    const logprobs = request.logprobs ? { logprobs: logprobEntries(answer.ids, answer.logprobs, text) } : {};
    const content = [{ type: 'output_text', text: answer.content, annotations: [], ...logprobs }];
    items.push({ type: 'message', id: `msg_${id}`, role: 'assistant', status, content });
  }
  for (const [i, call] of answer.calls.entries()) {
    items.push({
      type: 'function_call',
      id: `fc_${id}_${i}`,
      call_id: call.id,
      name: call.name,
      arguments: call.argumentsJson,
      status: 'completed',
    });
  }
  if (request.tokenIds !== false) Object.assign(items.at(-1)!, tokenBundle(answer));
  return items;
}

/** The whole answer. */
export function responsesReply(head: ReplyHead, answer: Answer, request: ResponsesRequest, text: Text) {
  const { echo, settings } = request;
  const cut = answer.finish === 'length';
  return {
    id: `resp_${head.id}`,
    object: 'response',
    created_at: head.created,
    model: head.model,
    system_fingerprint: head.fingerprint,
    status: cut ? 'incomplete' : 'completed',
    incomplete_details: cut ? { reason: 'max_output_tokens' } : null,
    error: null,
    output: outputItems(head.id, answer, request, text),
    instructions: echo.instructions ?? null,
    tools: echo.tools ?? [],
    tool_choice: request.toolChoice,
    parallel_tool_calls: true,
    temperature: settings.temperature,
    top_p: settings.topP,
    max_output_tokens: echo.max_output_tokens ?? null,
    metadata: echo.metadata ?? {},
    user: echo.user ?? null,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    text: { format: { type: 'text' } },
    truncation: 'disabled',
    store: false,
    usage: {
      input_tokens: answer.promptIds.length,
      input_tokens_details: { cached_tokens: answer.cachedTokens, cache_write_tokens: 0 },
      output_tokens: answer.ids.length,
      output_tokens_details: { reasoning_tokens: answer.reasoningTokens },
      total_tokens: answer.promptIds.length + answer.ids.length,
    },
    seed: answer.seed,
    raw_text: answer.rawText,
  };
}
