// Reads the body of /v1/responses: items become chat messages, an assistant's items of one turn become one message.
// Not a store: there is no earlier response to go on from. Invariant: as in chat-request.ts; and the token ids on the
// last item of a turn are those of the whole turn.
import { z } from 'zod';
import type { ChatMessage } from '../model/chat-template.ts';
import { badRequest, notGiven } from './api-error.ts';
import { argumentsOf, orderedBody, withToolChoice } from './chat-request.ts';
import {
  type Conversation,
  contentField,
  normalTools,
  readTokens,
  responsesTool,
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

const item = z.looseObject({
  type: z.string().optional(),
  role: z.enum(['user', 'assistant', 'system', 'developer']).optional(),
  content: contentField,
  summary: contentField,
  call_id: z.string().nullish(),
  name: z.string().nullish(),
  arguments: z.string().nullish(),
  output: contentField,
  ...tokenFields,
});

const body = z.strictObject({
  ...samplingFields,
  input: z.union([z.string(), z.array(item).min(1)]),
  instructions: z.string().nullish(),
  tools: z.array(z.union([responsesTool, z.looseObject({ type: z.string().regex(/^(?!function$)/) })])).nullish(),
  tool_choice: z.unknown().optional(),
  max_output_tokens: z.int().min(1).nullish(),
  max_tool_calls: z.int().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.unknown().optional(),
  include: z.array(z.string()).nullish(),
  text: z.looseObject({ format: z.looseObject({ type: z.string() }).nullish() }).nullish(),
  truncation: z.enum(['auto', 'disabled']).nullish(),
  reasoning: z.looseObject({}).nullish(),
  previous_response_id: z.string().nullish(),
  conversation: z.unknown().optional(),
  prompt: z.unknown().optional(),
  background: z.boolean().nullish(),
});

type Body = z.infer<typeof body>;
export type ResponsesEcho = Pick<Body, 'instructions' | 'tools' | 'max_output_tokens' | 'metadata' | 'user'>;

export interface ResponsesRequest extends ReadRequest {
  /** What the answer repeats. */
  echo: ResponsesEcho;
  toolChoice: 'auto' | 'none';
}

/** Messages of items. */
function messagesOf(input: Body['input'], instructions: string | null | undefined): TurnMessage[] {
  const messages: TurnMessage[] = instructions
    ? [{ message: { role: 'system', content: instructions }, tokens: null }]
    : [];
  if (typeof input === 'string') return [...messages, { message: { role: 'user', content: input }, tokens: null }];
  // The assistant's turn that is being put together; a bundle of token ids ends it.
  let turn: ChatMessage | null = null;
  const assistant = (): ChatMessage => {
    if (!turn) {
      turn = { role: 'assistant', content: '' };
      messages.push({ message: turn, tokens: null });
    }
    return turn;
  };
  for (const [i, value] of input.entries()) {
    const at = `input[${i}]`;
    const type = value.type ?? 'message';
    if (type === 'message' && value.role === 'assistant') {
      const made = assistant();
      made.content = `${made.content ?? ''}${textOf(value.content, `${at}.content`)}`;
    } else if (type === 'message' && value.role) {
      const role = value.role === 'developer' ? 'system' : value.role;
      messages.push({ message: { role, content: textOf(value.content, `${at}.content`) }, tokens: null });
    } else if (type === 'reasoning') {
      const said = textOf(value.content, `${at}.content`) || textOf(value.summary, `${at}.summary`);
      if (said !== '') assistant().reasoning_content = said;
    } else if (type === 'function_call' && value.name && typeof value.arguments === 'string') {
      const call = { name: value.name, arguments: argumentsOf(value.arguments, at) };
      const made = assistant();
      const id = value.call_id ? { id: value.call_id } : {};
      made.tool_calls = [...(made.tool_calls ?? []), { type: 'function', ...id, function: call }];
    } else if (type === 'function_call_output') {
      messages.push({ message: { role: 'tool', content: textOf(value.output, `${at}.output`) }, tokens: null });
    } else {
      throw badRequest(at, {
        found: `an item of type ${JSON.stringify(type)}${type === 'message' ? ' without a role' : ''}`,
        wanted: 'a message, reasoning, a whole function_call or a function_call_output',
        remedy: 'Leave the item out.',
      });
    }
    const tokens = readTokens(value, at);
    if (tokens && turn) messages.at(-1)!.tokens = tokens;
    const isAssistant = type === 'reasoning' || type === 'function_call' || value.role === 'assistant';
    if (tokens || !isAssistant) turn = null;
  }
  return messages;
}

function refuseResponses(value: Body): void {
  const refuse = (param: keyof Body, wanted: string, why: string) => {
    throw notGiven(param, value[param], wanted, why);
  };
  if (value.stream) refuse('stream', 'false', '/v1/chat/completions streams.');
  if (value.previous_response_id) refuse('previous_response_id', 'none', 'Nothing is stored: send the whole input.');
  if (value.conversation) refuse('conversation', 'none', 'Nothing is stored: send the whole input.');
  if (value.prompt) refuse('prompt', 'none', 'There are no stored prompts: send the input itself.');
  if (value.background) refuse('background', 'false', 'Answers are given while the request is open.');
  if (value.truncation === 'auto') refuse('truncation', '"disabled"', 'A history is never shortened silently.');
  if (value.max_tool_calls) refuse('max_tool_calls', 'none', 'Sampling is not constrained.');
  if ((value.text?.format?.type ?? 'text') !== 'text') {
    refuse('text', '{"format":{"type":"text"}}', 'Sampling is not constrained to a grammar.');
  }
  if (Object.values(value.reasoning ?? {}).some((setting) => setting !== null)) {
    refuse('reasoning', 'none', 'Use chat_template_kwargs.enable_thinking, where the template knows it.');
  }
  const other = (value.include ?? []).find((name) => name !== 'message.output_text.logprobs');
  if (other !== undefined) {
    throw notGiven('include', other, '["message.output_text.logprobs"] or none', 'Nothing else can be included.');
  }
  const builtIn = (value.tools ?? []).find(({ type }) => type !== 'function');
  if (builtIn) {
    throw notGiven('tools', builtIn.type, 'tools of type "function"', 'The caller runs the tools; none is built in.');
  }
}

/**
 * What NeMo Gym's rows put into metadata as JSON texts, because its request has no other place: `extra_body` gives
 * parameters that the body lacks, `chat_template_kwargs` those of the template.
 */
function metadataParameters(body: Record<string, unknown>): Record<string, unknown> {
  const metadata = body['metadata'] as Record<string, unknown> | null | undefined;
  const read = (name: string): Record<string, unknown> => {
    const text = metadata?.[name];
    if (typeof text !== 'string') return {};
    try {
      const value: unknown = JSON.parse(text);
      if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    } catch {
      // Reported below, as any other text that is no object.
    }
    throw badRequest(`metadata.${name}`, {
      found: JSON.stringify(text.slice(0, 80)),
      wanted: 'the JSON text of an object',
      remedy: 'Correct the row, or leave the entry out.',
    });
  };
  const template = read('chat_template_kwargs');
  const own = body['chat_template_kwargs'] as Record<string, unknown> | null | undefined;
  const kwargs = { ...template, ...own };
  return {
    ...read('extra_body'),
    ...body,
    ...(Object.keys(kwargs).length > 0 ? { chat_template_kwargs: kwargs } : {}),
  };
}

/** Reads a body, given as its text. Throws ApiError naming the field at fault. */
export function readResponsesRequest(text: string): ResponsesRequest {
  const ordered = orderedBody(text);
  const value = parseBody(body, metadataParameters(JSON.parse(text)));
  refuseResponses(value);
  refuseUnsupported(value, (value.tools ?? []).length > 0);
  const tools = normalTools((ordered['tools'] ?? []) as { name: string }[]);
  const conversation: Conversation = {
    ...withToolChoice(messagesOf(value.input, value.instructions), tools, value.tool_choice),
    enableThinking: thinkingOf(value),
    requiredPrefix: value.required_prefix_token_ids ?? null,
  };
  const { instructions, max_output_tokens, metadata, user } = value;
  return {
    model: value.model ?? null,
    conversation,
    settings: settingsOf(value),
    seed: value.seed ?? null,
    maxTokens: max_output_tokens ?? null,
    logprobs: (value.include ?? []).length > 0,
    stops: [],
    ignoreEnd: value.ignore_eos ?? false,
    tokenIds: value.return_token_ids ?? null,
    echo: { instructions, tools: value.tools, max_output_tokens, metadata, user },
    toolChoice: value.tool_choice === 'none' ? 'none' : 'auto',
  };
}
