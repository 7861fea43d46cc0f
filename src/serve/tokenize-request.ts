// Reads the body of /tokenize, a route of vLLM's that NeMo Gym's model server asks for the ids of a prompt.
// Not a generation. Invariant: the ids are those that /v1/chat/completions would make of the same messages.
import { z } from 'zod';
import { chatConversation, orderedBody, promptFields } from './chat-request.ts';
import type { Conversation } from './conversation.ts';
import { parseBody, samplingFields, thinkingOf } from './sampling-fields.ts';

const flags = {
  ...samplingFields,
  add_special_tokens: z.boolean().nullish(),
  return_token_strs: z.literal(false).nullish(),
} as const;
const chatBody = z.strictObject({ ...flags, ...promptFields, add_generation_prompt: z.literal(true).nullish() });
const textBody = z.strictObject({ ...flags, prompt: z.string() });

export type TokenizeRequest = { model: string | null } & ({ conversation: Conversation } | { prompt: string });

/** Reads a body, given as its text: messages, or a plain text as `prompt`. Throws ApiError naming the field. */
export function readTokenizeRequest(text: string): TokenizeRequest {
  const ordered = orderedBody(text);
  if ('prompt' in ordered) {
    const value = parseBody(textBody, JSON.parse(text));
    return { model: value.model ?? null, prompt: value.prompt };
  }
  const value = parseBody(chatBody, JSON.parse(text));
  const conversation: Conversation = {
    ...chatConversation(value, ordered),
    enableThinking: thinkingOf(value),
    requiredPrefix: value.required_prefix_token_ids ?? null,
  };
  return { model: value.model ?? null, conversation };
}
