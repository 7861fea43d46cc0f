// Pieces of shader text that the templates share.
// Invariant: parts that are zero or empty are left out, so that what is written reads as by hand.

/** What every shader with subgroup matrices begins with. */
export const subgroupMatrices = `enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
`;

/** Lines of text made for 0 to count - 1. */
export function each(count: number, line: (i: number) => string): string {
  return Array.from({ length: count }, (_, i) => line(i)).join('\n');
}

/** `a + b` as text: literal offsets need no bound. */
export function plus(a: string, b: number): string {
  return a === '' ? `${b}u` : b === 0 ? a : `${a} + ${b}u`;
}
