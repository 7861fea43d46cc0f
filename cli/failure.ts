// Errors as the command line shows them, and the exit code that each class has.
// Not a handler: nothing is retried or hidden. Invariant: every error ends in exactly one report on stderr; with --json
// that report is one line of JSON.
import { CommanderError } from 'commander';
import { PlanError, ShaderlError } from '../src/lib/errors.ts';

export interface Failure {
  /** Text for stderr, newline included; empty where the command line was only asked for help. */
  text: string;
  exitCode: number;
}

/** An error of commander (an unknown option, a missing value) as one of ours; null if it only printed help. */
function usageError(error: CommanderError, command: string): PlanError | null {
  if (error.exitCode === 0) return null;
  const code = error.code.replace(/^commander\./, '').replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  if (code === 'help') {
    return new PlanError(
      'no-command',
      `reading the command line: found no command; wanted one. ` +
        'Run `shaderl --help` for the list, or `shaderl quickstart` to see the whole job.',
    );
  }
  const message = error.message.replace(/^error: /, '').replace(/\n\(Did you mean (.*)\?\)$/s, '; did you mean $1?');
  const end = /[.?]$/.test(message) ? '' : '.';
  return new PlanError(code, `reading the command line: ${message}${end} Run \`${command} --help\` for what it takes.`);
}

/**
 * The report of an error. `command` is the command that was being read, for the hint. Errors that no class of ours
 * stands for are faults of the program or of the machine: exit code 4, with the stack.
 */
export function failureOf(error: unknown, json: boolean, command = 'shaderl'): Failure {
  const known = error instanceof CommanderError ? usageError(error, command) : error;
  if (known === null) return { text: '', exitCode: 0 };
  const isOurs = known instanceof ShaderlError;
  const exitCode = isOurs ? known.exitCode : 4;
  const name = known instanceof Error ? known.name : 'Error';
  const code = isOurs ? known.code : 'unexpected';
  const message = known instanceof Error ? known.message : String(known);
  if (json) return { text: `${JSON.stringify({ error: { class: name, code, message, exitCode } })}\n`, exitCode };
  const stack = isOurs || !(known instanceof Error) ? '' : `${known.stack?.replace(/^.*\n/, '') ?? ''}\n`;
  return { text: `shaderl: ${name} [${code}]: ${message}\n${stack}`, exitCode };
}
