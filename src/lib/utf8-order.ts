// Orders text by its UTF-8 bytes, as Rust, Python's safetensors and file hashes do.
// Not a collation. Invariant: the order of code points, which JavaScript's own `<` on UTF-16 breaks above U+FFFF.

/** Negative, zero or positive as `a` comes before, is, or comes after `b` by UTF-8 bytes. */
export function compareUtf8(a: string, b: string): number {
  let i = 0;
  while (i < a.length && i < b.length && a[i] === b[i]) i++;
  if (i === a.length || i === b.length) return a.length - b.length;
  // Step back from the middle of a surrogate pair that both share the first half of.
  if (i > 0 && a.charCodeAt(i) >= 0xdc00 && a.charCodeAt(i) <= 0xdfff && isHigh(a.charCodeAt(i - 1))) i--;
  return a.codePointAt(i)! - b.codePointAt(i)!;
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
