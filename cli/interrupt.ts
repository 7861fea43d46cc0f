// SIGINT (Ctrl-C) or SIGTERM in a long run asks it to stop after the step in hand; a later Ctrl-C ends the process.
// Invariant: one request is one stop, however often its signal arrives, and SIGTERM is never more than a request; the
// handlers are gone when the work is done, whatever its outcome.
import type { Progress } from './progress.ts';

/**
 * How long after the first signal a SIGINT still belongs to it: a shell sends it to a program and to whoever started it,
 * who may pass it on. SIGTERM may come at any time again: `timeout`, systemd and batch schedulers send it to a process
 * and to its group, the script of a batch job passes it on, and at its limit a job gets it once more before SIGKILL.
 */
const sameRequestMs = 1000;
const ofRun = 'stopping after this step; Ctrl-C from now on stops at once and loses it';

/**
 * Runs `work`, which asks `shouldStop` now and then, with SIGINT and SIGTERM as requests to stop. `notice` is said to
 * the first one; null where stopping loses nothing and takes no time.
 */
export async function interruptible<T>(
  progress: Progress,
  work: (shouldStop: () => boolean) => Promise<T>,
  notice: string | null = ofRun,
): Promise<T> {
  let asked: number | null = null;
  const stop = (signal: 'SIGINT' | 'SIGTERM') => {
    const now = performance.now();
    if (asked === null) {
      asked = now;
      if (notice !== null) progress.line(notice);
    } else if (signal === 'SIGINT' && now - asked >= sameRequestMs) {
      // 128 + SIGINT, as shells report it.
      process.exit(130);
    }
  };
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  try {
    return await work(() => asked !== null);
  } finally {
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}
