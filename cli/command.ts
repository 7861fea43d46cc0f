// What all commands share: the --json flag, an example in the help, progress, and printing the result.
// Not a command. Invariant: with --json, stdout carries exactly one JSON value and a newline.
import { type Command, InvalidArgumentError, Option } from 'commander';
import { createProgress, type Progress } from './progress.ts';
import type { Terminal } from './terminal.ts';

/** One run of a command. */
export interface Session {
  json: boolean;
  progress: Progress;
  terminal: Terminal;
  /** Prints the result: `value` as JSON, or `text`. */
  result(value: unknown, text: string): void;
  /** Ends the command with this code instead of 0, after its result. */
  fail(exitCode: 1 | 3): void;
}

export interface CommandSpec {
  name: string;
  summary: string;
  /** What the help says beyond the summary. */
  details?: string;
  /** Command lines, without the `$`. */
  examples: readonly [string, ...string[]];
}

/** Adds a command with --json and its examples. */
export function addCommand(program: Command, spec: CommandSpec): Command {
  const examples = spec.examples.map((line) => `  $ ${line}`).join('\n');
  return program
    .command(spec.name)
    .summary(spec.summary)
    .description(spec.details === undefined ? spec.summary : `${spec.summary}\n\n${spec.details}`)
    .option('--json', 'print the result as JSON, and an error as one line of JSON on stderr')
    .addHelpText('after', `\n${spec.examples.length === 1 ? 'Example' : 'Examples'}:\n${examples}`);
}

/** Makes the session of a command that is about to run. */
export function createSession(terminal: Terminal, json: boolean, setExitCode: (code: number) => void): Session {
  const progress = createProgress(terminal);
  return {
    json,
    progress,
    terminal,
    result(value, text) {
      progress.clear();
      terminal.out(`${json ? JSON.stringify(value) : text}\n`);
    },
    fail: setExitCode,
  };
}

/** An option for numbers. `wanted` describes the range in messages. */
export function numberOption(
  flags: string,
  description: string,
  range: { min?: number; above?: number; max?: number; integer?: boolean },
  fallback?: number,
): Option {
  const option = new Option(flags, description).argParser((text) => parseNumber(text, range));
  return fallback === undefined ? option : option.default(fallback);
}

function parseNumber(text: string, range: { min?: number; above?: number; max?: number; integer?: boolean }): number {
  const { min, above, max, integer } = range;
  const value = text.trim() === '' ? Number.NaN : Number(text);
  const fits =
    Number.isFinite(value) &&
    (!integer || Number.isSafeInteger(value)) &&
    (min === undefined || value >= min) &&
    (above === undefined || value > above) &&
    (max === undefined || value <= max);
  if (fits) return value;
  const limits = [
    min === undefined ? '' : `at least ${min}`,
    above === undefined ? '' : `more than ${above}`,
    max === undefined ? '' : `at most ${max}`,
  ].filter((limit) => limit !== '');
  const kind = integer ? 'a whole number' : 'a number';
  throw new InvalidArgumentError(`Wanted ${kind}${limits.length > 0 ? `, ${limits.join(' and ')}` : ''}.`);
}

/** Seeds are u32 everywhere: they are a key word of the generator. */
export const seedRange = { min: 0, max: 0xffffffff, integer: true } as const;

/** A comma-separated list of seeds. */
export function parseSeeds(text: string): number[] {
  return text.split(',').map((part) => parseNumber(part, seedRange));
}
