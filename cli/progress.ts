// Progress of a command on stderr: one line that rewrites itself on a terminal, plain lines now and then elsewhere.
// Not a log of results. Invariant: what `line` was given is always shown, in order; `update` may be skipped, and leaves
// nothing behind on a terminal.
import type { Terminal } from './terminal.ts';

export interface Progress {
  /** The state of the work now; shown for as long as it is the newest. */
  update(text: string): void;
  /** Something that stays on the screen. */
  line(text: string): void;
  /** Takes the rewriting line away. */
  clear(): void;
}

/** Between two plain lines of `update`, where the line cannot be rewritten. */
const PLAIN_INTERVAL_MS = 10_000;
const REWRITE_INTERVAL_MS = 100;

/** Progress for one command. On a pipe, the first update is shown at once and then one every ten seconds. */
export function createProgress(terminal: Terminal): Progress {
  const { interactive } = terminal;
  let shown = false;
  let lastAt = Number.NEGATIVE_INFINITY;
  function clear(): void {
    if (shown) terminal.err('\r\x1b[2K');
    shown = false;
  }
  return {
    update(text) {
      const now = terminal.now();
      if (now - lastAt < (interactive ? REWRITE_INTERVAL_MS : PLAIN_INTERVAL_MS)) return;
      lastAt = now;
      if (!interactive) {
        terminal.err(`${text}\n`);
        return;
      }
      // A line that wraps could not be taken back with one carriage return.
      const cut = text.length < terminal.columns ? text : `${text.slice(0, Math.max(1, terminal.columns - 4))}...`;
      terminal.err(`\r\x1b[2K${cut}`);
      shown = true;
    },
    line(text) {
      clear();
      terminal.err(`${text}\n`);
    },
    clear,
  };
}

/** `12.3 MB`, `4.0 GB`: decimal units, as vendors print them. */
export function formatBytes(bytes: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 999.95 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${value} bytes` : `${value.toFixed(1)} ${units[unit]}`;
}
