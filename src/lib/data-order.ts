// Which training prompts a step takes: a cursor over the seeded orders of the epochs.
// Not a loader: it deals in indices alone.
// Invariant: a pure function of (seed, count, cursor, take), so a run resumed in any epoch takes the same prompts.
import { PlanError } from './errors.ts';
import { epochOrder } from './rng.ts';

/** The next prompt: item `index` of the order of `epoch`, both 0-based. */
export interface DataCursor {
  epoch: number;
  index: number;
}

/**
 * The `take` prompt indices of one step and the cursor after it. As in TRL, what is left of an epoch and too little for
 * a step is dropped, other prompts in each epoch, and the next epoch's order begins. Throws PlanError `too-few-items`.
 */
export function takePrompts(
  seed: number,
  count: number,
  cursor: DataCursor,
  take: number,
): { indices: number[]; cursor: DataCursor } {
  if (!(take >= 1 && take <= count)) {
    throw new PlanError(
      'too-few-items',
      `choosing the prompts of a step: found ${count} training items; wanted at least ${take}, the groups of a step. ` +
        'Raise data.count or lower grpo.groupsPerStep.',
    );
  }
  const { epoch, index } = fittingCursor(cursor, count, take);
  const indices = epochOrder(seed, epoch, count).slice(index, index + take);
  return { indices, cursor: { epoch, index: index + take } };
}

function fittingCursor(cursor: DataCursor, count: number, take: number): DataCursor {
  return cursor.index + take <= count ? cursor : { epoch: cursor.epoch + 1, index: 0 };
}
