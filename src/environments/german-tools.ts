// The two tools of the German task as one pure function from (table, call) to observation.
// Not a session: nothing is remembered here. Invariant: every fault that a policy can cause is an observation with
// `error`, never an exception.
import { CALCULATOR_ARGUMENT, CALCULATOR_TOOL, LOOKUP_ARGUMENT, LOOKUP_TOOL } from './german-data.ts';
import { evaluateExpression } from './german-expression.ts';
import type { GermanPayload } from './german-task.ts';
import type { Observation } from './port.ts';

/** UTF-16 units of a call's JSON text; longer arguments are refused unread. */
export const MAX_ARGUMENTS_LENGTH = 1000;

/** What the environment says, by fault. */
export const FAULT_TEXT = {
  'unknown-tool': 'Fehler: unbekanntes Werkzeug',
  arguments: 'Fehler: ungültige Argumente',
  'unknown-key': 'Fehler: unbekannter Schlüssel',
  syntax: 'Fehler: ungültiger Ausdruck',
  'too-long': 'Fehler: Ausdruck zu lang',
  'too-large': 'Fehler: Zahl zu groß',
  'division-by-zero': 'Fehler: Division durch null',
  'inexact-division': 'Fehler: Division mit Rest',
  'too-many-calls': 'Fehler: zu viele Aufrufe',
} as const;

export function faultObservation(fault: keyof typeof FAULT_TEXT): Observation {
  return { content: FAULT_TEXT[fault], error: true };
}

/** The one string argument `name` of a JSON object, or null if the text is anything else (more keys, another type). */
function soleString(argumentsJson: string, name: string): string | null {
  if (argumentsJson.length > MAX_ARGUMENTS_LENGTH) return null;
  let parsed: unknown;
  try {
    parsed = JSON.parse(argumentsJson);
  } catch {
    return null;
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return null;
  const entries = Object.entries(parsed);
  const [key, content] = entries[0] ?? [];
  return entries.length === 1 && key === name && typeof content === 'string' ? content : null;
}

/** Runs one tool call against an episode's table. */
export function runTool(table: GermanPayload['table'], tool: string, argumentsJson: string): Observation {
  if (tool === LOOKUP_TOOL) {
    const key = soleString(argumentsJson, LOOKUP_ARGUMENT);
    if (key === null) return faultObservation('arguments');
    // Own keys only: "constructor" or "__proto__" is no good.
    if (!Object.hasOwn(table, key)) return faultObservation('unknown-key');
    return { content: String(table[key as keyof typeof table]), error: false };
  }
  if (tool === CALCULATOR_TOOL) {
    const text = soleString(argumentsJson, CALCULATOR_ARGUMENT);
    if (text === null) return faultObservation('arguments');
    const result = evaluateExpression(text);
    return result.fault ? faultObservation(result.fault) : { content: String(result.value), error: false };
  }
  return faultObservation('unknown-tool');
}
