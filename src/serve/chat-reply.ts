// Answers of /v1/chat/completions: the whole one, and the chunks of a streamed one.
// Not the sampling. Invariant: the deltas of a stream, joined, are the message of the whole answer.
import type { Text } from '../model/text.ts';
import type { Answer } from './answer.ts';

/** What is the same in every reply to one request. */
export interface ReplyHead {
  /** Without the prefix of its kind. */
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
  /** Names the weights, adapter and kernel family. */
  fingerprint: string;
}

export const usageOf = ({ promptIds, ids, cachedTokens, reasoningTokens }: Answer) => ({
  prompt_tokens: promptIds.length,
  completion_tokens: ids.length,
  total_tokens: promptIds.length + ids.length,
  prompt_tokens_details: { cached_tokens: cachedTokens },
  completion_tokens_details: { reasoning_tokens: reasoningTokens },
});

/** Log-prob entries of sampled ids, the stop token included. */
export function logprobEntries(ids: readonly number[], logprobs: readonly number[], text: Text, asIds = false) {
  return ids.map((id, i) => ({
    token: asIds ? `token_id:${id}` : text.decode([id]),
    logprob: logprobs[i]!,
    bytes: [...text.bytesOf(id)],
    top_logprobs: [],
  }));
}

/** The ids and log-probs of a turn as NeMo Gym carries them. */
export const tokenBundle = ({ promptIds, ids, logprobs }: Answer) => ({
  prompt_token_ids: promptIds,
  generation_token_ids: ids,
  generation_log_probs: logprobs,
});

const toolCalls = (answer: Answer) =>
  answer.calls.map(({ id, name, argumentsJson }) => ({
    id,
    type: 'function',
    function: { name, arguments: argumentsJson },
  }));

const envelope = (head: ReplyHead, object: string) => ({
  id: `chatcmpl-${head.id}`,
  object,
  created: head.created,
  model: head.model,
  system_fingerprint: head.fingerprint,
});

/** The whole answer. */
export function chatReply(
  head: ReplyHead,
  answer: Answer,
  wants: { logprobs: boolean; tokensAsIds: boolean; tokenIds: boolean | null },
  text: Text,
) {
  const calls = toolCalls(answer);
  const message = {
    role: 'assistant',
    content: answer.content === '' && calls.length > 0 ? null : answer.content,
    refusal: null,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(answer.reasoning === null || answer.reasoning === '' ? {} : { reasoning_content: answer.reasoning }),
    ...(wants.tokenIds === false ? {} : tokenBundle(answer)),
    raw_text: answer.rawText,
  };
  const content = wants.logprobs ? logprobEntries(answer.ids, answer.logprobs, text, wants.tokensAsIds) : null;
  return {
    ...envelope(head, 'chat.completion'),
    choices: [
      {
        index: 0,
        message,
        finish_reason: answer.finish,
        logprobs: content && { content, refusal: null },
        ...(wants.tokenIds ? { token_ids: answer.ids } : {}),
      },
    ],
    usage: usageOf(answer),
    seed: answer.seed,
    ...(wants.tokenIds ? { prompt_token_ids: answer.promptIds } : {}),
  };
}

/** One chunk of a stream. */
export function chatChunk(
  head: ReplyHead,
  delta: Record<string, unknown>,
  extra: { finish?: Answer['finish']; logprobs?: ReturnType<typeof logprobEntries> } = {},
) {
  const logprobs = extra.logprobs ? { content: extra.logprobs, refusal: null } : null;
  return {
    ...envelope(head, 'chat.completion.chunk'),
    choices: [{ index: 0, delta, logprobs, finish_reason: extra.finish ?? null }],
  };
}

/** The chunks after the last text: tool calls, then the finish with the ids, then the usage if it is wanted. */
export function closingChunks(
  head: ReplyHead,
  answer: Answer,
  wants: { tokenIds: boolean | null; includeUsage: boolean },
) {
  const calls = toolCalls(answer);
  const extras = { raw_text: answer.rawText, ...(wants.tokenIds === false ? {} : tokenBundle(answer)) };
  return [
    ...(calls.length > 0 ? [chatChunk(head, { tool_calls: calls.map((call, index) => ({ index, ...call })) })] : []),
    { ...chatChunk(head, extras, { finish: answer.finish }), seed: answer.seed },
    ...(wants.includeUsage
      ? [{ ...envelope(head, 'chat.completion.chunk'), choices: [], usage: usageOf(answer) }]
      : []),
  ];
}
