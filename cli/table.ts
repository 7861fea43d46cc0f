// Plain-text tables for a terminal. Invariant: columns line up; a column of numbers is set flush right.

/** Lines of a table with a header. `right` names the columns to set flush right. */
export function textTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  right: readonly number[] = [],
): string {
  const widths = header.map((title, c) => Math.max(title.length, ...rows.map((row) => row[c]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, c) => (right.includes(c) ? cell.padStart(widths[c]!) : cell.padEnd(widths[c]!)))
      .join('  ')
      .trimEnd();
  return [line(header), line(widths.map((width) => '-'.repeat(width))), ...rows.map(line)].join('\n');
}

/** `name: value` lines with the values aligned. */
export function factLines(facts: readonly (readonly [string, string])[]): string {
  const width = Math.max(...facts.map(([name]) => name.length));
  return facts.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join('\n');
}
