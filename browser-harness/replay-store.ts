// Replays made in this page, so that the rollout's own view can colour by them. Kept until the page is closed.
// Invariant: a replay belongs to one record: the same line of another file never gets it.
import type { OpenedRollout } from './open-rollout.ts';
import type { ReplayValues } from './token-stream.ts';

const replays = new Map<string, ReplayValues>();

const keyOf = ({ episode }: OpenedRollout) =>
  [episode.sessionId, episode.step, episode.group, episode.member, episode.policy, episode.ids.length].join(' ');

export function keepReplay(opened: OpenedRollout, values: ReplayValues): void {
  replays.set(keyOf(opened), values);
}

export function replayFor(opened: OpenedRollout): ReplayValues | null {
  return replays.get(keyOf(opened)) ?? null;
}
