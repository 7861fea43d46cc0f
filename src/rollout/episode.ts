// The record of one rollout: a growing list of token ids, each with its source, loss mask and log-prob.
// Not text: text is derived for parsing and display, and nothing is ever encoded again.
// Invariant: all per-token arrays have one length; the mask is 1 exactly on sampled tokens, which alone have log-probs.
import { z } from 'zod';

/** Where a token came from. Only `sampled` tokens are trained on. */
export const tokenSource = z.enum(['prompt', 'template', 'observation', 'sampled', 'forced']);
export type TokenSource = z.infer<typeof tokenSource>;

/** How a `<tool_call>` block was read. `dropped` is an observation that did not fit the token budget. */
export const callStatus = z.enum(['ok', 'invalid_json', 'unknown_tool', 'missing_arguments', 'unclosed']);
export type CallStatus = z.infer<typeof callStatus>;

/** One tool call as it stands in the sampled ids, and what came of it. */
export const toolCallRecord = z.strictObject({
  /** [start, end) in the episode's ids. */
  span: z.tuple([z.int(), z.int()]),
  status: callStatus,
  name: z.string().nullable(),
  /** The arguments' JSON text as sampled, or null where there is none. */
  argumentsJson: z.string().nullable(),
  /** What the environment answered; null if it was not dispatched; `dropped (budget)` if it did not fit. */
  observation: z.string().nullable(),
  /** Whether the environment was called. */
  dispatched: z.boolean(),
  dropped: z.boolean(),
  /** Whether the environment reported an error of its own. */
  environmentError: z.boolean(),
});
export type ToolCallRecord = z.infer<typeof toolCallRecord>;

export const turnRecord = z.strictObject({
  /** [start, end) of the sampled tokens in the episode's ids, the stop token included. */
  span: z.tuple([z.int(), z.int()]),
  /** `stop`: <|im_end|>; `end`: <|endoftext|>, which ends the episode; `length`: the token budget. */
  stop: z.enum(['stop', 'end', 'length']),
  calls: z.array(toolCallRecord),
});
export type TurnRecord = z.infer<typeof turnRecord>;

/** One line of the environment's own log of a session. */
export const serverLogEntry = z.strictObject({
  index: z.int(),
  tool: z.string(),
  argumentsJson: z.string(),
  observation: z.string(),
  error: z.boolean(),
});
export type ServerLogEntry = z.infer<typeof serverLogEntry>;

export const verdict = z.strictObject({
  strict: z.boolean(),
  /** Shaped reward in [0, 1]; 1 only with strict success. */
  reward: z.number(),
  parts: z.record(z.string(), z.number()),
  /** Calls that were not dispatched: unknown tool, malformed arguments. */
  invalidDispatches: z.int(),
  /** Errors that the environment itself reported. */
  toolErrors: z.int(),
  /** The final integer that was read, or null. */
  answer: z.string().nullable(),
  log: z.array(serverLogEntry),
});
export type Verdict = z.infer<typeof verdict>;

export const episode = z.strictObject({
  schema: z.literal('shaderl.episode/1'),
  taskId: z.string(),
  sessionId: z.string(),
  /** Optimizer step (1-based) that the rollout was made for; 0 in an evaluation. */
  step: z.int(),
  group: z.int(),
  member: z.int(),
  seed: z.int(),
  /** SHA-256 of the adapter that sampled it, or `base`. */
  policy: z.string(),
  temperature: z.number(),
  promptLength: z.int(),
  ids: z.array(z.int()),
  sources: z.array(tokenSource),
  mask: z.array(z.union([z.literal(0), z.literal(1)])),
  /** Natural log, at `temperature`, over the full vocabulary: an f32 value; null on tokens that were not sampled. */
  logprobs: z.array(z.number().nullable()),
  /** The same under the truncated (top-k, top-p, min-p) distribution that was sampled from. */
  truncatedLogprobs: z.array(z.number().nullable()),
  /** Of the distribution that `logprobs` are of, in nats, before the token was drawn; absent in older records. */
  entropies: z.array(z.number().nullable()).optional(),
  turns: z.array(turnRecord),
  /** The last turn hit a token limit, or an observation was dropped for lack of budget. */
  capped: z.boolean(),
  /** Tokens that were sampled and then discarded past the cap. */
  discardedTokens: z.int(),
  /** Null when the environment failed: infrastructure is never a reward. */
  verdict: verdict.nullable(),
  infrastructure: z.string().nullable(),
  seconds: z.number(),
});
export type Episode = z.infer<typeof episode>;
