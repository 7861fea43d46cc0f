// Pieces of shader text.
// Invariant: literal offsets of zero are left out, so that what is written reads as by hand.

/** Lines of text made for 0 to count - 1. */
export function each(count: number, line: (i: number) => string): string {
  return Array.from({ length: count }, (_, i) => line(i)).join('\n');
}

/** `name + by` as text, without a part that is zero. */
export function plus(name: string, by: number): string {
  return by === 0 ? name : `${name} + ${by}u`;
}
