// A terminal that keeps what a command writes, and a way to run a command line in this process.
import { main } from '../../cli/main.ts';
import type { Terminal } from '../../cli/terminal.ts';

export interface Ran {
  exitCode: number;
  stdout: string;
  stderr: string;
}

export interface KeptTerminal extends Terminal {
  stdout: string;
  stderr: string;
  /** Milliseconds that `now` gives. */
  time: number;
}

/** A terminal with a clock that stands still unless a test moves it. */
export function keptTerminal(parts: Partial<Terminal> = {}): KeptTerminal {
  const kept: KeptTerminal = {
    stdout: '',
    stderr: '',
    time: 0,
    interactive: false,
    columns: 80,
    out: (text) => {
      kept.stdout += text;
    },
    err: (text) => {
      kept.stderr += text;
    },
    now: () => kept.time,
    ...parts,
  };
  return kept;
}

/** Runs `shaderl <argv>` in this process. */
export async function runCli(...argv: string[]): Promise<Ran> {
  const terminal = keptTerminal();
  const exitCode = await main(argv, terminal);
  return { exitCode, stdout: terminal.stdout, stderr: terminal.stderr };
}
