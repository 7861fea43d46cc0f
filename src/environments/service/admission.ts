// How many sessions of a service this process may hold at once: a first-in first-out semaphore.
// Not the server's own limit. Invariant: never more holders than the limit at the time of their admission; a waiter
// that gave up takes no place.
import { fault } from './faults.ts';

export interface Admission {
  /** Waits for a place, at most `ms`. The returned function gives it back and is safe to repeat. */
  acquire(ms: number, doing: string): Promise<() => void>;
  /** The service's cap became known: never raises the limit. */
  lower(limit: number): void;
  held(): number;
  limit(): number;
}

export function createAdmission(initialLimit: number): Admission {
  let limit = initialLimit;
  let held = 0;
  const waiting: (() => void)[] = [];

  function admit(): void {
    while (held < limit && waiting.length > 0) {
      held += 1;
      waiting.shift()!();
    }
  }

  function release(): () => void {
    let given = false;
    return () => {
      if (given) return;
      given = true;
      held -= 1;
      admit();
    };
  }

  return {
    acquire(ms, doing) {
      return new Promise((resolve, reject) => {
        const enter = (): void => {
          clearTimeout(timer);
          resolve(release());
        };
        const timer = setTimeout(() => {
          const at = waiting.indexOf(enter);
          if (at >= 0) waiting.splice(at, 1);
          reject(
            fault('service-timeout', {
              doing,
              found: `${held} sessions are held and none ended within ${ms} ms`,
              wanted: `one of ${limit} places`,
              remedy: 'Close sessions when their episode ends, or allow more of them.',
            }),
          );
        }, ms);
        waiting.push(enter);
        admit();
      });
    },
    lower(cap) {
      limit = Math.max(1, Math.min(limit, cap));
    },
    held: () => held,
    limit: () => limit,
  };
}
