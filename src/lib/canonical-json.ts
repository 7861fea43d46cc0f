// Canonical JSON (RFC 8785): the one text of a value, for hashing plans, journals, seals and states.
// Not JSON.stringify: key order is fixed and what JSON cannot carry is refused instead of dropped.
// Invariant: canonicalJson(JSON.parse(canonicalJson(x))) === canonicalJson(x).
import canonicalize from 'canonicalize';
import { CheckpointError } from './errors.ts';

function refuse(path: string, found: string, remedy: string): never {
  const where = path === '' ? 'the top level' : `"${path}"`;
  throw new CheckpointError(
    'not-canonical',
    `writing canonical JSON: found ${found} at ${where}; wanted null, a boolean, a finite number, ` +
      `well-formed text, an array or a plain object. ${remedy}`,
  );
}

/** Refuses what RFC 8785 (I-JSON) has no text for; the wrapped package drops some of it silently. */
function requireJson(value: unknown, path: string): void {
  if (value === null || typeof value === 'boolean') return;
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) refuse(path, String(value), 'Record null, or stop before recording it.');
    return;
  }
  if (typeof value === 'string') {
    if (/\p{Surrogate}/u.test(value)) refuse(path, 'a lone surrogate', 'Decode the bytes as UTF-8 first.');
    return;
  }
  if (Array.isArray(value)) {
    // An index loop also meets the holes of a sparse array.
    for (let i = 0; i < value.length; i++) requireJson(value[i], `${path}[${i}]`);
    return;
  }
  if (typeof value !== 'object') refuse(path, typeof value, 'Leave the key out, or convert the value.');
  const prototype = Object.getPrototypeOf(value);
  if ((prototype !== Object.prototype && prototype !== null) || 'toJSON' in value) {
    refuse(path, `an object of class ${value.constructor?.name ?? 'unknown'}`, 'Convert it to plain data.');
  }
  for (const [key, member] of Object.entries(value)) {
    if (/\p{Surrogate}/u.test(key)) refuse(path, 'a key with a lone surrogate', 'Rename the key.');
    requireJson(member, path === '' ? key : `${path}.${key}`);
  }
}

/**
 * The RFC 8785 text of a plain JSON value: keys by UTF-16 code units, ECMAScript number text, no white space.
 * Throws CheckpointError `not-canonical` with the path of a NaN, an undefined member, a class instance and the like.
 */
export function canonicalJson(value: unknown): string {
  requireJson(value, '');
  // requireJson has refused every value for which the package returns undefined.
  return canonicalize(value) as string;
}

/** UTF-8 bytes of `canonicalJson`, as they are hashed and stored. */
export function canonicalBytes(value: unknown): Uint8Array {
  return new TextEncoder().encode(canonicalJson(value));
}
