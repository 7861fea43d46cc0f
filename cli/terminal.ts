// Where a command writes: results to stdout, everything else to stderr.
// Not a logger. Invariant: nothing but the result of a command ever reaches `out`.

export interface Terminal {
  /** Standard output, as it is: no newline is added. */
  out(text: string): void;
  /** Standard error, as it is. */
  err(text: string): void;
  /** Whether stderr is a terminal, on which a line can be rewritten. */
  interactive: boolean;
  /** Width of stderr in characters. */
  columns: number;
  /** Milliseconds, for durations and for how often progress is shown. */
  now(): number;
}

/** The terminal of this process. */
export function nodeTerminal(): Terminal {
  return {
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    interactive: process.stderr.isTTY === true,
    columns: process.stderr.columns ?? 80,
    now: () => performance.now(),
  };
}
