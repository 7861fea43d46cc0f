// Reads the JSON body of one tool call, strictly: what is not exactly one JSON object is invalid, nothing is repaired.
// Not a validator of arguments against a schema. Invariant: argumentsJson is the slice of text that was sampled, so key
// order and number spelling survive.
import { duplicateKey } from '../model/json-file.ts';
import type { CallStatus } from './episode.ts';

export interface CallBody {
  status: Exclude<CallStatus, 'unclosed'>;
  name: string | null;
  argumentsJson: string | null;
}

/** Whether `text` is one JSON value by RFC 8259. */
export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * The call in `text`. Not an object, no `name`, a key twice in one object (at any depth), or arguments that are neither
 * an object nor null: invalid_json, also for arguments given as a JSON string, whose text is kept all the same.
 * A name that no tool has: unknown_tool. No arguments, or null: missing_arguments (never taken as {}).
 */
export function readCall(text: string, knownTools: readonly string[]): CallBody {
  const invalid: CallBody = { status: 'invalid_json', name: null, argumentsJson: null };
  if (!isJson(text) || !text.trimStart().startsWith('{') || duplicateKey(text) !== null) return invalid;
  const members = memberTexts(text);
  const name = JSON.parse(members.get('name') ?? 'null') as unknown;
  if (typeof name !== 'string') return invalid;
  const argumentsJson = members.get('arguments') ?? null;
  if (argumentsJson !== null && argumentsJson !== 'null' && !argumentsJson.startsWith('{')) {
    return { ...invalid, name, argumentsJson };
  }
  if (!knownTools.includes(name)) return { status: 'unknown_tool', name, argumentsJson };
  if (argumentsJson === null || argumentsJson === 'null') {
    return { status: 'missing_arguments', name, argumentsJson: null };
  }
  return { status: 'ok', name, argumentsJson };
}

/** The members of a JSON object, known to be valid, as they stand in its text. */
function memberTexts(text: string): Map<string, string> {
  const members = new Map<string, string>();
  const token = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/gsu;
  let depth = 0;
  let key: string | null = null;
  let from = -1;
  let until = -1;
  const close = () => {
    if (key !== null) members.set(key, text.slice(from, until));
    key = null;
    from = -1;
  };
  for (const match of text.matchAll(token)) {
    const [raw] = match;
    if ('}]'.includes(raw)) depth--;
    if (depth === 0 || (depth === 1 && raw === ',')) close();
    else if (depth === 1 && key === null) key = JSON.parse(raw) as string;
    else if (!(depth === 1 && raw === ':')) {
      if (from < 0) from = match.index;
      until = match.index + raw.length;
    }
    if ('{['.includes(raw)) depth++;
  }
  return members;
}
