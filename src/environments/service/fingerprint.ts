// The first observation of a task: all members of a group must start from the same one.
// Not a seed check: a service may ignore seeds, and this is how it is noticed. Invariant: a task whose prompt or tools
// changed while the client lived is never rolled out.
import { sha256HexAsync } from '../../lib/sha256.ts';
import type { Message, ToolSpec } from '../port.ts';
import { fault } from './faults.ts';

/** Characters of first observations that are remembered; the oldest are dropped. */
const REMEMBERED = 32 * 1024 * 1024;

export interface Fingerprints {
  /** Throws the fault `group-fingerprint` if the task began otherwise before. */
  check(doing: string, taskId: string, messages: readonly Message[], tools: readonly ToolSpec[]): Promise<void>;
}

export function createFingerprints(remembered = REMEMBERED): Fingerprints {
  // The texts themselves: a hash of each would cost every opening a way to another thread.
  const known = new Map<string, string>();
  let size = 0;
  return {
    async check(doing, taskId, messages, tools) {
      // Key order counts: the chat template renders tools as they stand.
      const text = JSON.stringify([messages, tools]);
      const before = known.get(taskId);
      if (before === undefined) {
        known.set(taskId, text);
        size += text.length;
        for (const [oldest, { length }] of known) {
          if (size <= remembered) break;
          known.delete(oldest);
          size -= length;
        }
      } else if (before !== text) {
        const [is, was] = [await sha256HexAsync(text), await sha256HexAsync(before)];
        throw fault('group-fingerprint', {
          doing,
          found: `its first observation has fingerprint ${is.slice(0, 16)}`,
          wanted: `${was.slice(0, 16)}, as when the task was opened before`,
          remedy: "A group must start from one observation: make the service's reset repeatable.",
        });
      }
    },
  };
}
