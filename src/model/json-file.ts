// Reads JSON files strictly: valid UTF-8, valid JSON, and no key twice in one object (JSON.parse would keep the last).
// Not a schema: zod has the shapes; this turns its first complaint into a message with file, key, value and remedy.
// Invariant: what is returned is what every JSON reader would see, whichever of two equal keys it prefers.
import type { z } from 'zod';
import { fileFault, showValue } from './file-fault.ts';
import { type FileSource, missingFile } from './file-source.ts';

/** The parsed JSON of `name`. Throws ModelFileError if the file is absent, not UTF-8, not JSON or has a key twice. */
export async function readJson(source: FileSource, name: string): Promise<unknown> {
  const size = await source.size(name);
  if (size === null) throw missingFile(source.label, name, await source.list());
  return parseJsonBytes(await source.read(name, 0, size), `reading ${source.label}/${name}`);
}

/** The JSON in `bytes`; `doing` starts the message of an error. */
export function parseJsonBytes(bytes: Uint8Array, doing: string): unknown {
  const remedy = 'The file is damaged or was edited by hand; get it again from its publisher.';
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (cause) {
    const found = cause instanceof Error ? cause.message : String(cause);
    throw fileFault('bad-json', { doing, found, wanted: 'one JSON value in UTF-8', remedy, cause });
  }
  const key = duplicateKey(text);
  if (key !== null) {
    const found = `the key ${JSON.stringify(key)} twice in one object`;
    throw fileFault('duplicate-key', { doing, found, wanted: 'each key once', remedy });
  }
  return value;
}

/** The first key that stands twice in one object of a valid JSON text, or null. */
export function duplicateKey(text: string): string | null {
  // One set of keys an open object, null an open array. A string is a key exactly where an object expects one.
  const open: (Set<string> | null)[] = [];
  let expectKey = false;
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') {
      const end = stringEnd(text, at);
      const keys = open.at(-1);
      if (keys && expectKey) {
        const raw = text.slice(at, end + 1);
        const key = raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1);
        if (keys.has(key)) return key;
        keys.add(key);
        expectKey = false;
      }
      at = end;
    } else if (character === '{' || character === '[') {
      open.push(character === '{' ? new Set() : null);
      expectKey = character === '{';
    } else if (character === '}' || character === ']') {
      open.pop();
      expectKey = false;
    } else if (character === ',') {
      expectKey = open.at(-1) instanceof Set;
    }
  }
  return null;
}

function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at;
}

/** `value` through a zod schema; the first issue becomes a ModelFileError that names `doing`, the key and the value. */
export function checkShape<T>(schema: z.ZodType<T>, value: unknown, doing: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0]!;
  let at: unknown = value;
  for (const part of issue.path)
    at = at === null || at === undefined ? undefined : (at as Record<PropertyKey, unknown>)[part];
  throw fileFault('bad-value', {
    doing,
    found: `${issue.path.join('.') || 'the whole file'} = ${showValue(at)}`,
    wanted: issue.message,
    remedy: 'Correct the file, or get it again from its publisher.',
  });
}
