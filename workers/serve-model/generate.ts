// One request on its way through the policy: room, seed, submission, tokens, and its end by answer, abort or deadline.
// Not HTTP, not a reply's shape. Invariant: a job that was submitted is taken to its end or cancelled.
import { randomInt } from 'node:crypto';
import type { Text } from '../../src/model/text.ts';
import { type Answer, readAnswer } from '../../src/serve/answer.ts';
import { badRequest, refused } from '../../src/serve/api-error.ts';
import type { Conversation } from '../../src/serve/conversation.ts';
import { promptOf } from '../../src/serve/prompt.ts';
import type { ReadRequest } from '../../src/serve/sampling-fields.ts';
import { createStopWatch } from '../../src/serve/stop-texts.ts';
import type { PolicyService } from './api.ts';
import type { Limits } from './limits.ts';

export interface GeneratePorts {
  policy: PolicyService;
  text: Text;
  limits: Limits;
  /** Most tokens of prompt and answer together. */
  context: number;
  /** Bytes of the longest token. */
  longestToken: number;
  /** Seed of requests that name none; null draws one for each. */
  defaultSeed: number | null;
}

export interface Prepared {
  promptIds: number[];
  maxTokens: number;
  seed: number;
}

/** Refuses a text that cannot fit, however it is cut: rendering it would only hold up the others. */
export function refuseLongText({ messages }: Conversation, { context, longestToken }: GeneratePorts): void {
  const covered = messages.findLastIndex(({ tokens }) => tokens !== null);
  const characters = messages.slice(covered + 1).reduce((sum, { message }) => sum + (message.content?.length ?? 0), 0);
  if (characters <= context * longestToken) return;
  throw badRequest('messages', {
    found: `${characters} characters of text`,
    wanted: `at most ${context} tokens, this model's maximum context length here`,
    remedy: 'Shorten the conversation, or start the server with a larger --context.',
    code: 'context_length_exceeded',
  });
}

/** Prompt ids and room of a request. Throws ApiError where it does not fit. */
export function prepare(request: ReadRequest, ports: GeneratePorts): Prepared {
  const { text, limits, context, defaultSeed } = ports;
  refuseLongText(request.conversation, ports);
  const promptIds = promptOf(request.conversation, text);
  const room = context - promptIds.length;
  if (request.maxTokens !== null && request.maxTokens > limits.maxTokens) {
    throw badRequest('max_tokens', {
      found: `max_tokens ${request.maxTokens}`,
      wanted: `at most ${limits.maxTokens}`,
      remedy: 'Ask for fewer, or start the server with a larger --max-tokens.',
    });
  }
  const wanted = request.maxTokens === null ? '' : ` and max_tokens ${request.maxTokens}`;
  const maxTokens = request.maxTokens ?? Math.min(limits.maxTokens, room);
  // "maximum context length" is what other people's clients look for.
  if (room < 1 || maxTokens > room) {
    throw badRequest('messages', {
      found: `a prompt of ${promptIds.length} tokens${wanted}`,
      wanted: `at most ${context} tokens together, this model's maximum context length here`,
      remedy: 'Shorten the conversation, ask for fewer tokens, or start the server with a larger --context.',
      code: 'context_length_exceeded',
    });
  }
  return { promptIds, maxTokens, seed: request.seed ?? defaultSeed ?? randomInt(2 ** 32) };
}

const timedOut = (ms: number) =>
  refused(504, 'deadline_exceeded', {
    doing: 'answering the request',
    found: `no end after ${ms / 1000} s`,
    wanted: 'one by then',
    remedy: 'Ask for fewer tokens, send fewer requests at once, or start the server with a larger --deadline.',
    type: 'timeout_error',
  });

/** Whoever asked is gone; there is nobody to answer. */
export class ClientGone extends Error {}

/**
 * Samples the answer. `onTokens` is called with the tokens as they become certain: not with those that may belong to a
 * stop text. `signal`
 * ends the work: the client is gone. Throws ApiError 504 at the deadline, counted from `arrivedAt`.
 */
export async function generate(
  request: ReadRequest,
  { promptIds, maxTokens, seed }: Prepared,
  ports: GeneratePorts,
  signal: AbortSignal,
  leftMs: number,
  onTokens?: (ids: readonly number[], logprobs: readonly number[]) => Promise<void>,
): Promise<Answer> {
  const { policy, text, limits } = ports;
  const { settings } = request;
  const stopIds = request.ignoreEnd ? [] : [...text.stopIds, ...text.endIds];
  const job = await policy.submit({ promptIds, maxTokens, seed, settings, stopIds });
  let late = false;
  const cancel = () => void policy.cancel(job).catch(() => {});
  // Ends a wait for a client that does not read what it is sent.
  let giveUp = () => {};
  const givenUp = new Promise<void>((resolve) => {
    giveUp = resolve;
  });
  const stop = () => {
    cancel();
    giveUp();
  };
  const timer = setTimeout(() => {
    late = true;
    stop();
  }, leftMs);
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  const ids: number[] = [];
  const logprobs: number[] = [];
  const watch = request.stops.length > 0 ? createStopWatch(text, request.stops) : null;
  let told = 0;
  let over = false;
  try {
    for (;;) {
      const taken = await policy.take(job, onTokens || watch ? 'some' : 'all').catch((error: unknown) => {
        // Cancelled between two takes: the job is forgotten.
        if (signal.aborted || late) return null;
        throw error;
      });
      over = taken === null || taken.end !== null;
      if (late) throw timedOut(limits.deadlineMs);
      if (taken === null || signal.aborted || taken.end === 'cancelled') throw new ClientGone();
      let released = watch ? told : ids.length + taken.ids.length;
      let stopped = false;
      for (const [i, id] of taken.ids.entries()) {
        ids.push(id);
        logprobs.push(taken.logprobs[i]!);
        if (!watch) continue;
        // What was sampled after a stop text is no part of the answer.
        ({ released, stopped } = watch.push(id));
        if (stopped) break;
      }
      if (onTokens && released > told) {
        const telling = onTokens(ids.slice(told, released), logprobs.slice(told, released));
        told = released;
        await Promise.race([telling, givenUp]);
        if (late) throw timedOut(limits.deadlineMs);
      }
      if (taken.end === null && !stopped) continue;
      const sampled = { promptIds, ids, logprobs, cachedTokens: taken.cachedTokens, seed };
      return readAnswer(sampled, request.conversation.toolNames, text, { stops: request.stops, stopped });
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
    if (!over) cancel();
  }
}
