// Zod issues as text that names the place and the value found.
// Not an error class: the caller puts the text into its own message.
// Invariant: the full path of every issue is shown.
import type { z } from 'zod';

/** `a.b[2].c` for a path of keys and indices. */
export function pathText(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    return text === '' ? String(part) : `${text}.${String(part)}`;
  }, '');
}

/** The value at a path of plain data; undefined where there is none. */
export function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  let value = root;
  for (const part of path) {
    if (value === null || typeof value !== 'object' || !Object.hasOwn(value, part)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[part];
  }
  return value;
}

/** A value for a message: its JSON text, cut at 60 characters. */
export function shownValue(value: unknown): string {
  if (value === undefined) return 'nothing';
  // JSON would show NaN and the infinities as null.
  const text = typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? String(value));
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** All issues of a failed parse as `"path": found value; wanted ...`, joined by `; and `. */
export function issuesText(error: z.ZodError, input: unknown): string {
  return error.issues
    .map((issue) => `"${pathText(issue.path)}": found ${shownValue(valueAt(input, issue.path))} (${issue.message})`)
    .join('; and ');
}
