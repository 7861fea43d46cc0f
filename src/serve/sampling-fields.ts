// The sampling parameters that both APIs share, and what a reader of a request gives.
// Not the sampler's settings check (kernels/sample.ts): ranges are refused here, with the field's name. Invariant: a
// parameter that would change the answer and that the sampler does not have is an error, never ignored.
import { z } from 'zod';
import type { SamplingSettings } from '../model/head-draw.ts';
import { badRequest, notGiven } from './api-error.ts';
import type { Conversation } from './conversation.ts';

/** What is to be sampled, and how the answer is to look. */
export interface ReadRequest {
  model: string | null;
  conversation: Conversation;
  settings: SamplingSettings;
  /** Null: the server chooses one and says which. */
  seed: number | null;
  /** Null: as many as there is room for. */
  maxTokens: number | null;
  logprobs: boolean;
  /** Texts at which the turn ends; they are no part of its content. */
  stops: readonly string[];
  /** Goes on after stop tokens, up to the limit: for measurements. */
  ignoreEnd: boolean;
  /** Prompt and generated ids in the answer: null, the default, is NeMo Gym's places, true is vLLM's too. */
  tokenIds: boolean | null;
}

/** Fields of both APIs. `top_k`, `min_p` and `ignore_eos` are no part of OpenAI's; vLLM has them. */
export const samplingFields = {
  model: z.string().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.int().min(-1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  seed: z.int().min(0).max(0xffffffff).nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  return_token_ids: z.boolean().nullish(),
  ignore_eos: z.boolean().nullish(),
  required_prefix_token_ids: z.array(z.int().min(0)).nullish(),
  chat_template_kwargs: z.looseObject({ enable_thinking: z.boolean().optional() }).nullish(),
  // Taken and of no effect: they name the caller, or a store and queues that are not there.
  user: z.string().nullish(),
  safety_identifier: z.string().nullish(),
  prompt_cache_key: z.string().nullish(),
  prompt_cache_retention: z.string().nullish(),
  service_tier: z.enum(['auto', 'default', 'priority', 'flex']).nullish(),
  store: z.boolean().nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
} as const;

type Shared = z.infer<z.ZodObject<typeof samplingFields>>;

/** Settings of a request: OpenAI's defaults (temperature 1, no truncation) where it names none. */
export function settingsOf(body: Shared): SamplingSettings {
  const { temperature, top_p: topP, top_k: topK, min_p: minP } = body;
  return {
    temperature: temperature ?? 1,
    topP: topP ?? 1,
    topK: topK === undefined || topK === null || topK < 0 ? 0 : topK,
    minP: minP ?? 0,
  };
}

/** `enable_thinking` of the template's arguments. Throws ApiError for any other argument. */
export function thinkingOf(body: Shared): boolean | undefined {
  const { enable_thinking: enableThinking, ...others } = body.chat_template_kwargs ?? {};
  const [other] = Object.keys(others);
  if (other !== undefined) {
    const remedy = 'Templates are rendered with enable_thinking alone.';
    throw notGiven(`chat_template_kwargs.${other}`, others[other], 'nothing', remedy);
  }
  return enableThinking;
}

/** Refuses what the sampler does not have. */
export function refuseUnsupported(body: Shared, toolsGiven: boolean): void {
  if (body.top_logprobs) {
    const why = 'The sampler computes the log-prob of the sampled token alone.';
    throw notGiven('top_logprobs', body.top_logprobs, '0', why);
  }
  if (body.parallel_tool_calls === false && toolsGiven) {
    throw notGiven('parallel_tool_calls', false, 'true', 'Sampling is not constrained: a turn may hold several calls.');
  }
}

/** The body of a request by a schema; null counts as absent. Throws ApiError naming the first field at fault. */
export function parseBody<T>(schema: z.ZodType<T>, body: object): T {
  const parsed = schema.safeParse(Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null)));
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  const path = issue.path.map((key, i) => (typeof key === 'number' ? `[${key}]` : `${i > 0 ? '.' : ''}${String(key)}`));
  if (issue.code === 'unrecognized_keys') {
    const param = [...path, `${path.length > 0 ? '.' : ''}${issue.keys[0]}`].join('');
    throw badRequest(param, {
      found: 'a parameter that this endpoint does not have',
      wanted: "a parameter of OpenAI's API that a sampler of this kind can honour",
      remedy: 'Leave it out.',
      code: 'unsupported_parameter',
    });
  }
  throw badRequest(path.length > 0 ? path.join('') : null, {
    found: issue.message,
    wanted: "the type and range of OpenAI's API",
    remedy: 'Correct the request.',
  });
}
