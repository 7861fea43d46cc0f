// Which rollouts of a list are shown: by step, reward, cap, malformed calls, task text.
// Not a search in the rollouts' own text (search-text.ts). Invariant: a broken line is shown unless a filter needs what
// it does not have.
import type { RolloutRow } from './skim.ts';

export interface RolloutFilter {
  step: number | null;
  capped: boolean;
  malformed: boolean;
  /** Rollouts whose environment failed, and lines that cannot be read. */
  failed: boolean;
  /** Rollouts with audit findings, among those that were audited. */
  findings: boolean;
  strict: 'any' | 'yes' | 'no';
  minReward: number;
  maxReward: number;
  task: string;
}

export const filterDefaults: RolloutFilter = {
  step: null,
  capped: false,
  malformed: false,
  failed: false,
  findings: false,
  strict: 'any',
  minReward: 0,
  maxReward: 1,
  task: '',
};

/** Whether a row passes. `findings`: how many the audit has on it, or null where it was not audited. */
export function passesFilter(
  row: RolloutRow,
  step: number,
  filter: RolloutFilter,
  findings: number | null = null,
): boolean {
  if (filter.step !== null && step !== filter.step) return false;
  if (filter.findings && !(findings !== null && findings > 0)) return false;
  if (row.kind === 'broken') {
    return !filter.capped && !filter.malformed && filter.strict === 'any' && filter.task === '';
  }
  if (filter.capped && !row.capped) return false;
  if (filter.malformed && !row.malformed) return false;
  if (filter.failed && row.infrastructure === null) return false;
  if (filter.strict !== 'any' && row.strict !== (filter.strict === 'yes')) return false;
  if (filter.minReward > 0 && !((row.reward ?? -1) >= filter.minReward)) return false;
  if (filter.maxReward < 1 && !((row.reward ?? 2) <= filter.maxReward)) return false;
  return filter.task === '' || row.taskId.includes(filter.task);
}
