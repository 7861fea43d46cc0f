// JSON files that a user hands to a command: token ids, messages, tools.
// Not checkpoint files (src/model/json-file.ts). Invariant: what comes back passed its schema; a refusal names the
// file, the place in it and what was wanted there.
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { PlanError } from '../src/lib/errors.ts';
import { pathText, shownValue, valueAt } from '../src/lib/zod-issues.ts';
import { duplicateKey } from '../src/model/json-file.ts';

/** Token ids, as a JSON array. */
export const idsFile = z.array(z.int().min(0)).min(2, 'at least two ids: the first one is never predicted');

const toolCall = z.looseObject({ function: z.looseObject({ name: z.string(), arguments: z.unknown() }) });

/** A conversation as chat templates take it: further keys go to the template as they are. */
export const messagesFile = z
  .array(
    z.looseObject({
      role: z.string().min(1),
      content: z.string().nullable().optional(),
      reasoning_content: z.string().nullable().optional(),
      tool_calls: z.array(toolCall).optional(),
      name: z.string().optional(),
    }),
  )
  .min(1, 'at least one message');

/** Function schemas in OpenAI's form. */
export const toolsFile = z.array(
  z.looseObject({
    type: z.literal('function'),
    function: z.looseObject({
      name: z.string().min(1),
      description: z.string().optional(),
      parameters: z.record(z.string(), z.unknown()).optional(),
    }),
  }),
);

function refuse(code: string, file: string, found: string, wanted: string, remedy: string): never {
  throw new PlanError(code, `reading ${file}: found ${found}; wanted ${wanted}. ${remedy}`);
}

/** The text of a file. Throws PlanError `unreadable-file`. */
export function readTextFile(file: string, wanted: string): string {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const found = code === 'ENOENT' ? 'no such file' : code === 'EISDIR' ? 'a folder' : (error as Error).message;
    refuse('unreadable-file', file, found, wanted, 'Check the path.');
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    refuse('not-utf8', file, 'bytes that are not UTF-8', wanted, 'Save the file as UTF-8.');
  }
}

/** A JSON file through its schema, with its text. `wanted` describes the whole file. Throws PlanError. */
export function readJsonFile<T>(file: string, schema: z.ZodType<T>, wanted: string): { value: T; text: string } {
  const text = readTextFile(file, wanted);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    refuse('bad-json', file, (error as Error).message, wanted, 'Correct the JSON.');
  }
  const twice = duplicateKey(text);
  if (twice !== null) {
    refuse(
      'duplicate-key',
      file,
      `the key ${JSON.stringify(twice)} twice in one object`,
      'each key once',
      'Remove one.',
    );
  }
  const result = schema.safeParse(parsed);
  if (result.success) return { value: result.data, text };
  const issue = result.error.issues[0]!;
  const place = issue.path.length === 0 ? 'the file' : pathText(issue.path);
  const found = `${shownValue(valueAt(parsed, issue.path))} at ${place} (${issue.message})`;
  return refuse('bad-value', file, found, wanted, 'Correct the file.');
}
