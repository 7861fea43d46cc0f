// Reads the body of /v1/chat/completions.
// Not the Responses API (responses-request.ts). Invariant: what would change the answer and cannot be had is an error
// that names the field.
import { z } from 'zod';
import { parseOrderedJson } from '../model/chat-json.ts';
import type { ChatMessage } from '../model/chat-template.ts';
import { badRequest, notGiven } from './api-error.ts';
import {
  type Conversation,
  chatTool,
  contentField,
  normalTools,
  readTokens,
  type TurnMessage,
  textOf,
  tokenFields,
} from './conversation.ts';
import {
  parseBody,
  type ReadRequest,
  refuseUnsupported,
  samplingFields,
  settingsOf,
  thinkingOf,
} from './sampling-fields.ts';

const toolCall = z.looseObject({
  id: z.string().nullish(),
  type: z.literal('function').optional(),
  function: z.looseObject({ name: z.string(), arguments: z.string() }),
});

const message = z.looseObject({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: contentField,
  name: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  tool_call_id: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  reasoning: z.string().nullish(),
  ...tokenFields,
});

/** What makes a prompt; /tokenize takes these too. */
export const promptFields = {
  messages: z.array(message).min(1),
  tools: z.array(chatTool).nullish(),
  tool_choice: z.unknown().optional(),
} as const;

const stopText = z.string().min(1).max(256);

const body = z.strictObject({
  ...samplingFields,
  ...promptFields,
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  n: z.int().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  logprobs: z.boolean().nullish(),
  return_tokens_as_token_ids: z.boolean().nullish(),
  stop: z.union([stopText, z.array(stopText).max(16)]).nullish(),
  frequency_penalty: z.number().nullish(),
  presence_penalty: z.number().nullish(),
  repetition_penalty: z.number().nullish(),
  logit_bias: z.record(z.string(), z.number()).nullish(),
  response_format: z.looseObject({ type: z.string() }).nullish(),
  modalities: z.array(z.string()).nullish(),
  reasoning_effort: z.string().nullish(),
  skip_special_tokens: z.boolean().nullish(),
  spaces_between_special_tokens: z.boolean().nullish(),
});

export interface ChatRequest extends ReadRequest {
  stream: boolean;
  includeUsage: boolean;
  /** Tokens of the log-probs as `token_id:<n>` instead of their text. */
  tokensAsIds: boolean;
}

type Ordered = Record<string, unknown>;

/** The conversation of a body: `value` is checked, `ordered` is the same JSON with its key order kept. */
export function chatConversation(value: z.infer<z.ZodObject<typeof promptFields>>, ordered: unknown) {
  const messages = value.messages.map((item, i): TurnMessage => {
    const at = `messages[${i}]`;
    const content = textOf(item.content, `${at}.content`);
    const role = item.role === 'developer' ? 'system' : item.role;
    const made: ChatMessage = { role, content };
    if (item.name !== null && item.name !== undefined) made.name = item.name;
    if (role !== 'assistant') return { message: made, tokens: null };
    const reasoning = item.reasoning_content ?? item.reasoning;
    if (reasoning) made.reasoning_content = reasoning;
    if (item.tool_calls && item.tool_calls.length > 0) {
      made.tool_calls = item.tool_calls.map(({ id, function: call }, c) => ({
        type: 'function',
        ...(id ? { id } : {}),
        function: { name: call.name, arguments: argumentsOf(call.arguments, `${at}.tool_calls[${c}]`) },
      }));
    }
    return { message: made, tokens: readTokens(item, at) };
  });
  const list = ((ordered as Ordered)['tools'] ?? []) as { function: { name: string } }[];
  const tools = normalTools(list.map((tool) => tool.function));
  return withToolChoice(messages, tools, value.tool_choice);
}

/** Arguments as the template gets them: an object with its key order, or the text where it is no JSON. */
export function argumentsOf(text: string, doing: string): unknown {
  try {
    const value = parseOrderedJson(text, `reading ${doing}`);
    return typeof value === 'object' && value !== null ? value : text;
  } catch {
    return text;
  }
}

/** `none` leaves the tools out of the prompt; `auto` shows them. Throws ApiError for a choice that forces a call. */
export function withToolChoice(
  messages: TurnMessage[],
  tools: Pick<Conversation, 'tools' | 'toolNames'>,
  choice: unknown,
): Pick<Conversation, 'messages' | 'tools' | 'toolNames'> {
  if (choice === 'none') return { messages, tools: [], toolNames: [] };
  if (choice === undefined || choice === null || choice === 'auto') return { messages, ...tools };
  throw notGiven('tool_choice', choice, '"auto" or "none"', 'Sampling is not constrained, so no call can be forced.');
}

/** Reads a body, given as its text. Throws ApiError naming the field at fault. */
export function readChatRequest(text: string): ChatRequest {
  const ordered = orderedBody(text);
  const value = parseBody(body, JSON.parse(text));
  const refuse = (param: keyof typeof value, wanted: string, why: string) => {
    throw notGiven(param, value[param], wanted, why);
  };
  refuseUnsupported(value, (value.tools ?? []).length > 0);
  if ((value.n ?? 1) !== 1) refuse('n', '1', 'Send a request for each answer: they run side by side.');
  for (const param of ['frequency_penalty', 'presence_penalty'] as const) {
    if (value[param]) refuse(param, '0', 'Penalties would make a token depend on more than its distribution.');
  }
  if ((value.repetition_penalty ?? 1) !== 1) refuse('repetition_penalty', '1', 'There are no penalties.');
  if (Object.keys(value.logit_bias ?? {}).length > 0) refuse('logit_bias', 'none', 'Logits are taken as they are.');
  if ((value.response_format?.type ?? 'text') !== 'text') {
    refuse('response_format', '{"type":"text"}', 'Sampling is not constrained to a grammar.');
  }
  if ((value.modalities ?? ['text']).some((kind) => kind !== 'text')) refuse('modalities', '["text"]', 'Text only.');
  if (value.reasoning_effort) {
    refuse('reasoning_effort', 'none', 'Use chat_template_kwargs.enable_thinking, where the template knows it.');
  }
  if (value.top_logprobs !== null && value.top_logprobs !== undefined && !value.logprobs) {
    throw badRequest('top_logprobs', {
      found: 'top_logprobs without logprobs',
      wanted: 'logprobs true beside it',
      remedy: 'Set logprobs to true, or leave top_logprobs out.',
    });
  }
  const conversation: Conversation = {
    ...chatConversation(value, ordered),
    enableThinking: thinkingOf(value),
    requiredPrefix: value.required_prefix_token_ids ?? null,
  };
  return {
    model: value.model ?? null,
    conversation,
    settings: settingsOf(value),
    seed: value.seed ?? null,
    maxTokens: value.max_completion_tokens ?? value.max_tokens ?? null,
    logprobs: value.logprobs ?? false,
    stops: typeof value.stop === 'string' ? [value.stop] : (value.stop ?? []),
    ignoreEnd: value.ignore_eos ?? false,
    tokenIds: value.return_token_ids ?? null,
    stream: value.stream ?? false,
    includeUsage: value.stream_options?.include_usage ?? false,
    tokensAsIds: value.return_tokens_as_token_ids ?? false,
  };
}

/** A body with its key order. Throws ApiError for what is no JSON object. */
export function orderedBody(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = parseOrderedJson(text, 'reading the request');
  } catch (error) {
    throw badRequest(null, {
      found: error instanceof Error ? error.message : String(error),
      wanted: 'one JSON object',
      remedy: 'Send the body as application/json.',
      code: 'invalid_json',
    });
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw badRequest(null, {
    found: 'JSON that is no object',
    wanted: 'one JSON object',
    remedy: 'Send the parameters as an object.',
    code: 'invalid_json',
  });
}
