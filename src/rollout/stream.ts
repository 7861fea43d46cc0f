// The token stream of one episode: a growing list of ids, each with source, loss mask and log-probs. Sampled ids go in
// as they were sampled; nothing is ever encoded again, shortened or replaced.
// Not the episode record, which adds turns and verdict. Invariant: all lists have one length; the mask is 1 exactly on
// sampled tokens, which alone have log-probs.
import { AuditError } from '../lib/errors.ts';
import type { Episode, TokenSource } from './episode.ts';

export interface TokenStream {
  promptLength: number;
  ids: number[];
  sources: TokenSource[];
  mask: (0 | 1)[];
  logprobs: (number | null)[];
  truncatedLogprobs: (number | null)[];
  entropies: (number | null)[];
}

/** The fields of an episode that are the stream's. */
export type StreamFields = Pick<
  Episode,
  'promptLength' | 'ids' | 'sources' | 'mask' | 'logprobs' | 'truncatedLogprobs' | 'entropies'
>;

/** A stream that holds the prompt: source `prompt`, mask 0. */
export function createStream(promptIds: readonly number[]): TokenStream {
  const stream: TokenStream = {
    promptLength: promptIds.length,
    ids: [],
    sources: [],
    mask: [],
    logprobs: [],
    truncatedLogprobs: [],
    entropies: [],
  };
  for (const id of promptIds) append(stream, id, 'prompt', unsampled);
  return stream;
}

/** What is known of a draw; all null where nothing was drawn. */
interface DrawValues {
  logprob: number | null;
  truncatedLogprob: number | null;
  entropy: number | null;
}

const unsampled: DrawValues = { logprob: null, truncatedLogprob: null, entropy: null };

/**
 * Appends a sampled token with its natural log-prob at the sampling temperature over the full vocabulary, the one under
 * the truncated distribution, and the full distribution's entropy in nats (null if it is not known). The token that
 * stops a turn is sampled too, and is trained on.
 */
export function appendSampled(
  stream: TokenStream,
  id: number,
  logprob: number,
  truncatedLogprob: number,
  entropy: number | null = null,
): void {
  append(stream, id, 'sampled', { logprob, truncatedLogprob, entropy });
}

/** Appends what stands between turns (Text.toolSuffixParts): sources `template` and `observation`, mask 0. */
export function appendSuffix(
  stream: TokenStream,
  suffix: { ids: readonly number[]; sources: readonly ('template' | 'observation')[] },
): void {
  if (suffix.ids.length !== suffix.sources.length) {
    throw maskFault('appending a tool suffix', `${suffix.ids.length} ids, ${suffix.sources.length} sources`);
  }
  for (const [index, id] of suffix.ids.entries()) append(stream, id, suffix.sources[index]!, unsampled);
}

/** Appends tokens that were put in the model's mouth (a forced </think>): mask 0, no log-prob. */
export function appendForced(stream: TokenStream, ids: readonly number[]): void {
  for (const id of ids) append(stream, id, 'forced', unsampled);
}

function append(stream: TokenStream, id: number, source: TokenSource, values: DrawValues): void {
  stream.ids.push(id);
  stream.sources.push(source);
  stream.mask.push(source === 'sampled' ? 1 : 0);
  stream.logprobs.push(values.logprob);
  stream.truncatedLogprobs.push(values.truncatedLogprob);
  stream.entropies.push(values.entropy);
}

/** The stream's fields of an episode record, as copies. `label` names the rollout in the AuditError of a bad stream. */
export function toEpisodeFields(stream: TokenStream, label: string): StreamFields {
  checkStream(stream, label);
  return {
    promptLength: stream.promptLength,
    ids: [...stream.ids],
    sources: [...stream.sources],
    mask: [...stream.mask],
    logprobs: [...stream.logprobs],
    truncatedLogprobs: [...stream.truncatedLogprobs],
    entropies: [...stream.entropies],
  };
}

/**
 * Throws AuditError if a stream, or an episode's fields of it, contradicts itself: `mask-length` (lists of different
 * lengths, or a prompt longer than the ids), `mask-source` (mask 1 is not exactly on sampled tokens, or a prompt
 * token stands elsewhere), `logprob-source` (a sampled token without finite log-probs, or another one with any, or with
 * an entropy), `token-id` (no id). `label` names the rollout. Nothing is padded or cut to make it fit.
 */
export function checkStream(stream: StreamFields, label: string): void {
  const { ids, sources, mask, logprobs, truncatedLogprobs, entropies, promptLength } = stream;
  const doing = `auditing ${label}`;
  const drawn = { logprobs, 'truncated logprobs': truncatedLogprobs, ...(entropies ? { entropies } : {}) };
  const lists = { 'mask entries': mask, sources, ...drawn };
  for (const [name, list] of Object.entries(lists)) {
    if (list.length !== ids.length) throw maskFault(doing, `${ids.length} token ids, ${list.length} ${name}`);
  }
  if (!(Number.isSafeInteger(promptLength) && promptLength >= 0 && promptLength <= ids.length)) {
    throw maskFault(doing, `a prompt of ${promptLength} in ${ids.length} token ids`);
  }
  const fault = (code: string, index: number, found: string, wanted: string) =>
    new AuditError(
      code,
      `${doing}: found ${found} at index ${index}; wanted ${wanted}. Nothing was trained on; make the rollout again.`,
    );
  for (const [index, id] of ids.entries()) {
    const source = sources[index]!;
    if (!Number.isSafeInteger(id) || id < 0)
      throw fault('token-id', index, `token id ${id}`, 'a whole number from 0 on');
    if ((source === 'prompt') !== index < promptLength) {
      throw fault('mask-source', index, `source ${source}`, `prompt exactly on the first ${promptLength} tokens`);
    }
    if (mask[index] !== (source === 'sampled' ? 1 : 0)) {
      throw fault('mask-source', index, `mask ${mask[index]} on a ${source} token`, 'mask 1 exactly on sampled tokens');
    }
    for (const logprob of [logprobs[index]!, truncatedLogprobs[index]!]) {
      if (source === 'sampled' ? Number.isFinite(logprob) : logprob === null) continue;
      throw fault(
        'logprob-source',
        index,
        `log-prob ${logprob} on a ${source} token`,
        'finite ones on sampled tokens only',
      );
    }
    const entropy = entropies?.[index] ?? null;
    if (entropy !== null && !(source === 'sampled' && Number.isFinite(entropy))) {
      const wanted = 'finite ones on sampled tokens only';
      throw fault('logprob-source', index, `entropy ${entropy} on a ${source} token`, wanted);
    }
  }
}

function maskFault(doing: string, found: string): AuditError {
  return new AuditError(
    'mask-length',
    `${doing}: found ${found}; they must be equal in number. Nothing was trained on; make the rollout again.`,
  );
}
