// The fingerprint of a task's first observation: all members of a group must start from the same one.
// Not a seed check: a service may ignore seeds, and this is how it is noticed. Invariant: a task whose prompt or tools
// changed while the client lived is never rolled out.
import { sha256HexAsync } from '../../lib/sha256.ts';
import type { Message, ToolSpec } from '../port.ts';
import { fault } from './faults.ts';

/** Tasks that are remembered; the oldest are dropped. */
const REMEMBERED = 65_536;

export interface Fingerprints {
  /** Throws the fault `group-fingerprint` if the task began otherwise before. */
  check(doing: string, taskId: string, messages: readonly Message[], tools: readonly ToolSpec[]): Promise<void>;
}

export function createFingerprints(): Fingerprints {
  const known = new Map<string, string>();
  return {
    async check(doing, taskId, messages, tools) {
      // Key order counts: the chat template renders tools as they stand.
      const print = await sha256HexAsync(JSON.stringify([messages, tools]));
      const before = known.get(taskId);
      if (before === undefined) {
        if (known.size >= REMEMBERED) known.delete(known.keys().next().value!);
        known.set(taskId, print);
      } else if (before !== print) {
        throw fault('group-fingerprint', {
          doing,
          found: `its first observation has fingerprint ${print.slice(0, 16)}`,
          wanted: `${before.slice(0, 16)}, as when the task was opened before`,
          remedy: "A group must start from one observation: make the service's reset repeatable.",
        });
      }
    },
  };
}
