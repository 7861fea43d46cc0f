// Builds the errors of reading model files, so that each has all four parts of a message.
// Not an error class: lib/errors.ts has those. Invariant: a long list of names is cut to samples with its count.
import { ModelFileError } from '../lib/errors.ts';

/**
 * The four parts of a message. `doing` names the file; `found` and `wanted` name the values; `remedy` is a sentence.
 */
export interface Fault {
  doing: string;
  found: string;
  wanted: string;
  remedy: string;
  cause?: unknown;
}

/** A ModelFileError with code `code` (kebab-case) that says all of `fault`. */
export function fileFault(code: string, fault: Fault): ModelFileError {
  const text = `${fault.doing}: found ${fault.found}; wanted ${fault.wanted}. ${fault.remedy}`;
  return new ModelFileError(code, text, fault.cause === undefined ? undefined : { cause: fault.cause });
}

/** Up to `most` names, then how many more there are. */
export function sampleNames(names: readonly string[], most = 3): string {
  const shown = names.slice(0, most).join(', ');
  return names.length > most ? `${shown} and ${names.length - most} more` : shown;
}

/** A found value as short text for a message. */
export function showValue(value: unknown): string {
  const text = value === undefined ? 'nothing' : (JSON.stringify(value) ?? String(value));
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
