// The per-token arrays of an episode: lengths, vocabulary, mask, sources, and the log-probs of sampled tokens.
// Not the conditioning (walk.ts): what each token must be is handed in.
// Invariant: the mask is 1, and log-probs exist, exactly where a token was sampled.
import type { Text } from '../model/text.ts';
import type { Episode } from '../rollout/episode.ts';
import type { Report } from './findings.ts';
import type { ExpectedSource } from './walk.ts';

/** A log-prob above 0 by rounding alone. */
const ABOVE_ZERO = 1e-6;
/** The truncated distribution has no less mass on a kept token, up to the rounding of two sums. */
const BELOW_FULL = 1e-5;

/** Lists of different lengths; the index is where the shorter one ends. */
export function checkLengths(episode: Episode, report: Report): void {
  const { ids } = episode;
  for (const name of ['sources', 'mask', 'logprobs', 'truncatedLogprobs', 'entropies'] as const) {
    const length = episode[name]?.length ?? ids.length;
    if (length !== ids.length) report('lengths', Math.min(length, ids.length), `${length} ${name}`, `${ids.length}`);
  }
  const { promptLength } = episode;
  if (!(promptLength >= 0 && promptLength <= ids.length)) {
    report('lengths', null, `a prompt of ${promptLength} tokens`, `at most ${ids.length}`);
  }
}

/** Ids that stand for nothing: rows past the vocabulary, or holes in it. Returns whether all are good. */
export function checkVocabulary(episode: Episode, text: Text, report: Report): boolean {
  const missing = new Set(text.missingIds);
  const before = text.vocabularySize;
  let good = true;
  for (const [index, id] of episode.ids.entries()) {
    if (Number.isSafeInteger(id) && id >= 0 && id < before && !missing.has(id)) continue;
    report('vocabulary', index, `id ${id}`, `an id of the tokenizer, below ${before}`);
    good = false;
  }
  return good;
}

/** Mask and source of each token against what it must be. Each rule reports its first token and how many there are. */
export function checkSources(episode: Episode, expected: readonly ExpectedSource[], report: Report): void {
  const { ids, sources, mask } = episode;
  const wantedMask = (i: number) => {
    const source = expected[i] ?? null;
    return source === null ? Number(sources[i] === 'sampled') : Number(source === 'sampled');
  };
  const has = (list: readonly unknown[], i: number) => i < list.length;
  const wrongMask = ids.flatMap((_, i) => (has(mask, i) && mask[i] !== wantedMask(i) ? [i] : []));
  const wrongSource = ids.flatMap((_, i) => (has(sources, i) && !agrees(sources[i]!, expected[i] ?? null) ? [i] : []));
  const [maskAt] = wrongMask;
  if (maskAt !== undefined) {
    const what = expected[maskAt] ?? sources[maskAt];
    report(
      'mask',
      maskAt,
      `mask ${mask[maskAt]}`,
      `${wantedMask(maskAt)} on a ${what} token (${wrongMask.length} such)`,
    );
  }
  const [sourceAt] = wrongSource;
  if (sourceAt !== undefined) {
    const found = `source ${sources[sourceAt]}`;
    report('source', sourceAt, found, `${expected[sourceAt]} (${wrongSource.length} such)`);
  }
}

function agrees(found: string, wanted: ExpectedSource): boolean {
  if (wanted === null) return true;
  return wanted === 'context' ? found === 'template' || found === 'observation' : found === wanted;
}

/** Log-probs exist on sampled tokens alone, are f32 values, finite, and not above 0. */
export function checkLogprobs(episode: Episode, expected: readonly ExpectedSource[], report: Report): void {
  const { logprobs, truncatedLogprobs, sources } = episode;
  for (const i of episode.ids.keys()) {
    const sampled = (expected[i] ?? sources[i]) === 'sampled';
    const [full, truncated] = [logprobs[i], truncatedLogprobs[i]];
    if (full !== undefined && !isGood(full, sampled)) report('logprob', i, `log-prob ${full}`, wantedText(sampled));
    if (truncated === undefined) continue;
    if (!isGood(truncated, sampled)) report('truncated-logprob', i, `log-prob ${truncated}`, wantedText(sampled));
    else if (sampled && typeof full === 'number' && truncated !== null && !(truncated >= full - BELOW_FULL)) {
      report('truncated-logprob', i, `${truncated}`, `at least the full one, ${full}`);
    }
  }
}

const wantedText = (sampled: boolean) => (sampled ? 'a finite f32 value, at most 0' : 'none: it was not sampled');

function isGood(logprob: number | null, sampled: boolean): boolean {
  if (!sampled || logprob === null) return !sampled && logprob === null;
  return Number.isFinite(logprob) && logprob <= ABOVE_ZERO && Math.fround(logprob) === logprob;
}
