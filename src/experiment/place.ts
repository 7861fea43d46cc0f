// Where a file stops being what was frozen: the first byte, or the block that it lies in. Pure: opens no file.
// Not the verdict that something changed, which SHA-256 alone gives. Invariant: a place is only told of bytes that were
// compared with bytes, or with digests, that the plan's own hashes vouch for.

/** Offsets are in bytes from the file's start. */
export type Place =
  /** `frozen` and `found`: the byte there, as `0x` and two hex digits. `line` counts from 1; null in a binary file. */
  | { kind: 'byte'; offset: number; line: number | null; frozen: string; found: string }
  /** Equal up to where the shorter one ends. */
  | { kind: 'end'; offset: number; frozenBytes: number; foundBytes: number }
  /** The first difference lies in [from, to), of which only digests are kept. */
  | { kind: 'block'; from: number; to: number; frozenBytes: number; foundBytes: number }
  /** Nothing to compare with. */
  | { kind: 'unknown'; frozenBytes: number; foundBytes: number };

const hex = (byte: number) => `0x${byte.toString(16).padStart(2, '0')}`;

/** The first difference of two byte strings; null if they are equal. */
export function firstDifference(frozen: Uint8Array, found: Uint8Array): Place | null {
  const common = Math.min(frozen.length, found.length);
  let line: number | null = 1;
  for (let offset = 0; offset < common; offset++) {
    const byte = frozen[offset]!;
    if (byte !== found[offset]) return { kind: 'byte', offset, line, frozen: hex(byte), found: hex(found[offset]!) };
    if (byte === 0) line = null;
    else if (byte === 0x0a && line !== null) line += 1;
  }
  if (frozen.length === found.length) return null;
  return { kind: 'end', offset: common, frozenBytes: frozen.length, foundBytes: found.length };
}

/** A place in words, as part of a sentence that has named the file. */
export function placeText(place: Place): string {
  if (place.kind === 'byte') {
    const { offset, line, frozen, found } = place;
    const where = line === null ? '' : ` (line ${line})`;
    return `the first byte that differs is at offset ${offset}${where}: found ${found}, wanted ${frozen}`;
  }
  const { kind, frozenBytes, foundBytes } = place;
  const sizes = frozenBytes === foundBytes ? '' : ` (found ${foundBytes} bytes, wanted ${frozenBytes})`;
  if (kind === 'block') return `the first byte that differs is one of offsets ${place.from} to ${place.to - 1}${sizes}`;
  if (kind === 'unknown') return `which byte differs cannot be told, no copy of the file was kept${sizes}`;
  return foundBytes < frozenBytes
    ? `it was cut at offset ${place.offset}: found ${foundBytes} bytes, wanted ${frozenBytes}`
    : `it goes on after offset ${place.offset}: found ${foundBytes} bytes, wanted ${frozenBytes}`;
}
