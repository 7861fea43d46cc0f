// Finds the known name that a mistyped one most likely meant, for error messages.
// Not a fuzzy lookup: nothing is ever accepted because it is near. Invariant: ties go to the earlier candidate.

/**
 * Edit distance: insertions, deletions, substitutions and swaps of two neighbours each cost 1 (optimal string
 * alignment).
 */
export function editDistance(a: string, b: string): number {
  let beforeLast = new Uint32Array(b.length + 1);
  let last = Uint32Array.from({ length: b.length + 1 }, (_, j) => j);
  let row = new Uint32Array(b.length + 1);
  for (let i = 1; i <= a.length; i++) {
    row[0] = i;
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1];
      let best = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, beforeLast[j - 2]! + 1);
      row[j] = best;
    }
    [beforeLast, last, row] = [last, row, beforeLast];
  }
  return last[b.length]!;
}

/**
 * The candidate nearest to `name` by edits, letter case ignored, or null if none is nearer than half of its own length.
 */
export function nearestName(name: string, candidates: Iterable<string>): string | null {
  let best: string | null = null;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance && distance * 2 < Math.max(candidate.length, 3)) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}
