// Ctrl-C in a long run: the first one asks it to stop after the step in hand, the second one ends the process.
// Invariant: the handlers are gone when the work is done, whatever its outcome.
import type { Progress } from './progress.ts';

/** Runs `work`, which asks `shouldStop` now and then, with SIGINT and SIGTERM as requests to stop. */
export async function interruptible<T>(
  progress: Progress,
  work: (shouldStop: () => boolean) => Promise<T>,
): Promise<T> {
  let stopping = false;
  const stop = () => {
    // 128 + SIGINT, as shells report it.
    if (stopping) process.exit(130);
    stopping = true;
    progress.line('stopping after this step; once more stops at once and loses it');
  };
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
  try {
    return await work(() => stopping);
  } finally {
    process.off('SIGINT', stop);
    process.off('SIGTERM', stop);
  }
}
