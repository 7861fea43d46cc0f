// The members of a group laid side by side: turn by turn, with the places where they first part.
// Not a text diff: tokens are compared by id. Invariant: the segments of a member, joined, are its whole stream.
import type { Episode } from '../rollout/episode.ts';

/** Tokens [start, end) of one member; null where the member has no such turn. */
export type Segment = [number, number] | null;

export interface AlignedRow {
  label: string;
  /** One a member. */
  segments: Segment[];
  /** First offset within the row at which the members that have it do not agree; null where they never part. */
  differsAt: number | null;
}

/** Starts of the prompt and of each turn; a turn's suffix (observations, framing) belongs to it. */
function starts({ promptLength, turns, ids }: Episode): number[] {
  return [0, ...turns.map((turn, i) => (i === 0 ? promptLength : turn.span[0])), ids.length];
}

function firstDifference(episodes: readonly Episode[], segments: readonly Segment[]): number | null {
  const present = segments.flatMap((segment, m) => (segment ? [{ ids: episodes[m]!.ids, segment }] : []));
  if (present.length < 2) return null;
  const length = Math.max(...present.map(({ segment: [from, to] }) => to - from));
  for (let i = 0; i < length; i++) {
    const at = present.map(({ ids, segment: [from, to] }) => (from + i < to ? ids[from + i] : undefined));
    if (at.some((id) => id !== at[0])) return i;
  }
  return null;
}

/** Rows of the prompt and of each turn. */
export function alignTurns(episodes: readonly Episode[]): AlignedRow[] {
  const all = episodes.map(starts);
  const count = Math.max(...all.map((list) => list.length)) - 1;
  return Array.from({ length: count }, (_, row) => {
    const segments = all.map((list): Segment => (row + 1 < list.length ? [list[row]!, list[row + 1]!] : null));
    return {
      label: row === 0 ? 'Prompt' : `Turn ${row}`,
      segments,
      differsAt: firstDifference(episodes, segments),
    };
  });
}
