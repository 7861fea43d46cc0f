// Compares token lists that should agree: what was sampled with what a row holds, a stream with a rendering.
// Not a repair: a difference is named by its index. Invariant: equal lists give no index.

/** Indices at which `stored` is not what was `sampled`; a missing or surplus id counts at its index. Ascending. */
export function tokenDrift(sampled: readonly number[], stored: readonly number[]): number[] {
  const length = Math.max(sampled.length, stored.length);
  return Array.from({ length }, (_, index) => index).filter((index) => sampled[index] !== stored[index]);
}

/**
 * The first index at which `longer` does not continue `prefix`, or null if it does. A rendering that breaks its own
 * prefix must start a new training segment with a prompt of its own; it is never spliced into a stream.
 */
export function prefixBreak(prefix: readonly number[], longer: readonly number[]): number | null {
  const index = prefix.findIndex((id, at) => longer[at] !== id);
  return index < 0 ? null : index;
}
