// The one effective loss mask: numerator, divisor, length metrics, KL and clip fractions all count these tokens.
// Not padding: a mask is as long as its ids, and rows are padded by length, never by an id's value.
// Invariant: lossMask is 1 only where the stream's mask is 1.
import type { Episode } from './episode.ts';

/**
 * Whether an episode counts as truncated by TRL's rule, its last id is no stop id: the last turn ran into the token
 * limit, or the stream ends in tool tokens after it, or nothing was sampled.
 */
export function isTruncated(episode: Pick<Episode, 'ids' | 'turns'>): boolean {
  const last = episode.turns.at(-1);
  return last === undefined || last.stop === 'length' || last.span[1] !== episode.ids.length;
}

/**
 * The effective loss mask of an episode, one entry an id: 1 on sampled tokens, and all 0 if `maskTruncated` excludes
 * the episode because it is truncated.
 */
export function lossMask(
  episode: Pick<Episode, 'ids' | 'mask' | 'turns'>,
  options: { maskTruncated: boolean },
): (0 | 1)[] {
  if (options.maskTruncated && isTruncated(episode)) return episode.mask.map(() => 0);
  return [...episode.mask];
}

/** Rows padded on the right with `fill` to the longest of them. Which entries are real is known by length alone. */
export function padRows<T>(rows: readonly (readonly T[])[], fill: T): T[][] {
  const length = rows.reduce((longest, row) => Math.max(longest, row.length), 0);
  return rows.map((row) => [...row, ...Array.from({ length: length - row.length }, () => fill)]);
}
