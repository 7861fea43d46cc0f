// Zod's issues with a configuration file as sentences: unknown keys with the nearest known one, wrong values with what
// was wanted. Not a schema. Invariant: every sentence names the full path of the key.
import { z } from 'zod';
import { nearestName } from './lib/nearest.ts';
import { pathText, shownValue, valueAt } from './lib/zod-issues.ts';

export interface KeyProblem {
  code: 'unknown-key' | 'bad-value';
  /** Without a full stop. */
  text: string;
}

interface SchemaNode {
  properties?: Record<string, SchemaNode>;
}

/** Full paths of all keys of a schema, parents first, in the schema's order. */
function knownKeys(schema: z.ZodType): string[] {
  const keys: string[] = [];
  const walk = (node: SchemaNode, prefix: string) => {
    for (const [key, child] of Object.entries(node.properties ?? {})) {
      keys.push(`${prefix}${key}`);
      walk(child, `${prefix}${key}.`);
    }
  };
  walk(z.toJSONSchema(schema, { io: 'input' }) as SchemaNode, '');
  return keys;
}

const leafOf = (key: string) => key.slice(key.lastIndexOf('.') + 1);

/** The nearest known key: among its neighbours, else a key of nearly that name anywhere in the schema. */
function nearestKey(parent: string, key: string, known: readonly string[]): string | null {
  const prefix = parent === '' ? '' : `${parent}.`;
  const siblings = known.filter((name) => name.startsWith(prefix) && !name.slice(prefix.length).includes('.'));
  const sibling = nearestName(key, siblings.map(leafOf));
  if (sibling !== null) return `${prefix}${sibling}`;
  const leaf = nearestName(key, known.map(leafOf));
  return leaf === null ? null : (known.find((name) => leafOf(name) === leaf) ?? null);
}

function unknownKey(parent: string, key: string, known: readonly string[]): KeyProblem {
  const full = parent === '' ? key : `${parent}.${key}`;
  const nearest = nearestKey(parent, key, known);
  const siblings = known.filter((name) => name.startsWith(parent === '' ? '' : `${parent}.`));
  const text =
    nearest === null
      ? `found the unknown key "${full}"; wanted one of ${siblings.join(', ')}. Remove the key`
      : `found the unknown key "${full}"; the nearest known key is "${nearest}". Rename or remove the key`;
  return { code: 'unknown-key', text };
}

/** What a value should have been, from one issue. */
function wantedText(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return issue.expected === 'int' ? 'a whole number' : `a value of type ${issue.expected}`;
    case 'invalid_value':
      return `one of ${issue.values.map((value) => JSON.stringify(value)).join(', ')}`;
    case 'too_small': {
      const bound = issue.inclusive === false ? 'more than' : 'at least';
      const unit = issue.origin === 'string' ? ' characters' : issue.origin === 'array' ? ' entries' : '';
      return `${bound} ${issue.minimum}${unit}`;
    }
    case 'too_big':
      return `${issue.inclusive === false ? 'less than' : 'at most'} ${issue.maximum}`;
    case 'invalid_union':
      return [...new Set(issue.errors.flat().map(wantedText))].join(' or ');
    default:
      return issue.message;
  }
}

/** All issues of a parse, in the schema's order, each as one sentence. */
export function keyProblems(error: z.ZodError, input: unknown, schema: z.ZodType): KeyProblem[] {
  const known = knownKeys(schema);
  return error.issues.flatMap((issue): KeyProblem[] => {
    const path = pathText(issue.path);
    if (issue.code === 'unrecognized_keys') return issue.keys.map((key) => unknownKey(path, key, known));
    const value = valueAt(input, issue.path);
    const remedy = value === undefined ? 'Add it' : 'Correct the value';
    const text = `"${path}": found ${shownValue(value)}; wanted ${wantedText(issue)}. ${remedy}`;
    return [{ code: 'bad-value', text }];
  });
}
