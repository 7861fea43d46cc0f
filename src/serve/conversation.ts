// What both APIs read a conversation into: chat messages, the token ids that some of them carry, and tools.
// Not a prompt yet (prompt.ts). Invariant: token ids come as a whole bundle or not at all, and stay with the assistant
// turn that they were given with.
import { z } from 'zod';
import type { ChatMessage } from '../model/chat-template.ts';
import { badRequest } from './api-error.ts';

/** Ids of an assistant's turn, as an earlier answer gave them: its whole prompt, then what was sampled. */
export interface TurnTokens {
  promptIds: readonly number[];
  generationIds: readonly number[];
}

export interface TurnMessage {
  message: ChatMessage;
  tokens: TurnTokens | null;
}

export interface Conversation {
  messages: TurnMessage[];
  /** In the one shape that training shows; key order and number spelling are the request's. Empty: none. */
  tools: readonly object[];
  toolNames: readonly string[];
  /** Absent: the template's default. */
  enableThinking: boolean | undefined;
  /** Ids that the prompt begins with, in place of what the messages up to the last assistant's would give. */
  requiredPrefix: readonly number[] | null;
}

const ids = z.array(z.int().min(0));

/** Fields that an assistant's message or output item may carry; the routed experts of other policies are refused. */
export const tokenFields = {
  prompt_token_ids: ids.nullish(),
  generation_token_ids: ids.nullish(),
  generation_log_probs: z.array(z.number()).nullish(),
} as const;

export type TokenFields = z.infer<z.ZodObject<typeof tokenFields>>;

/** The bundle of a message, or null if it has none. Throws ApiError for a part of one. */
export function readTokens(fields: TokenFields, param: string): TurnTokens | null {
  const { prompt_token_ids: prompt, generation_token_ids: generation, generation_log_probs: logprobs } = fields;
  const given = [prompt, generation, logprobs].filter((list) => list !== null && list !== undefined);
  if (given.length === 0) return null;
  if (!prompt || !generation || !logprobs || generation.length !== logprobs.length) {
    const lists = { prompt_token_ids: prompt, generation_token_ids: generation, generation_log_probs: logprobs };
    throw badRequest(param, {
      found: Object.entries(lists)
        .map(([name, list]) => `${list?.length ?? 'no'} ${name}`)
        .join(', '),
      wanted: 'all three or none, with one log-prob for each generated id',
      remedy: 'Send them back as the answer gave them, or leave all three out.',
    });
  }
  return prompt.length === 0 ? null : { promptIds: prompt, generationIds: generation };
}

const part = z.looseObject({ type: z.string(), text: z.string().optional() });
/** A text, or parts of one. */
export const contentField = z.union([z.string(), z.array(part)]).nullish();

const textParts = new Set(['text', 'input_text', 'output_text', 'reasoning_text', 'summary_text', 'refusal']);

/** Text of a content. Throws ApiError for a part that is no text. */
export function textOf(content: z.infer<typeof contentField>, param: string): string {
  if (content === null || content === undefined) return '';
  if (typeof content === 'string') return content;
  return content
    .map(({ type, text }, i) => {
      if (textParts.has(type) && text !== undefined) return text;
      throw badRequest(`${param}[${i}]`, {
        found: `a part of type ${JSON.stringify(type)}`,
        wanted: 'text: the model has no other input',
        remedy: 'Send text parts only.',
        code: 'unsupported_parameter',
      });
    })
    .join('');
}

const functionFields = z.looseObject({
  name: z.string().regex(/^[\w.-]{1,128}$/, 'a name of 1 to 128 letters, digits, _, - or .'),
  description: z.string().nullish(),
  parameters: z.record(z.string(), z.unknown()).nullish(),
});
export const chatTool = z.looseObject({ type: z.literal('function'), function: functionFields });
export const responsesTool = functionFields.extend({ type: z.literal('function') });

interface OrderedFunction {
  name: string;
  description?: string | null;
  parameters?: object | null;
}

/**
 * Tools as training shows them: type, then name, description and parameters (`strict` and the like are no part of a
 * prompt). `functions` come from parseOrderedJson. Throws ApiError for a name that stands there twice.
 */
export function normalTools(functions: readonly OrderedFunction[]): Pick<Conversation, 'tools' | 'toolNames'> {
  const toolNames = functions.map(({ name }) => name);
  const twice = toolNames.find((name, i) => toolNames.indexOf(name) !== i);
  if (twice !== undefined) {
    throw badRequest('tools', { found: `${twice} twice`, wanted: 'each name once', remedy: 'Rename or drop one.' });
  }
  const tools = functions.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, description: description ?? '', parameters: parameters ?? { type: 'object', properties: {} } },
  }));
  return { tools, toolNames };
}
