// Numbers and times as the views show them. Invariant: a missing value is a dash, never 0.

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 0.001 || size >= 1e6) return value.toExponential(2);
  return Number.isInteger(value) ? String(value) : value.toFixed(size >= 100 ? 1 : digits);
}

/** An axis' numbers with one number of digits, short enough for it: 2e-6, 0.05, 120. */
export function axisNumbers(values: readonly number[]): string[] {
  const largest = Math.max(...values.map(Math.abs));
  if (largest > 0 && largest < 0.01) {
    return values.map((value) => (value === 0 ? '0' : value.toExponential(1).replace('.0e', 'e')));
  }
  const digits = [0, 1, 2, 3, 4].find((n) =>
    values.every((value) => Math.abs(value - Number(value.toFixed(n))) < 1e-9),
  );
  return values.map((value) => (value === 0 ? '0' : value.toFixed(digits ?? 4)));
}

export const percent = (value: number) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

export const shortHash = (hash: string) => (hash.length > 16 ? `${hash.slice(0, 12)}…` : hash);

/** Yes, no or unknown, in a form that needs no colour. */
export const mark = (value: boolean | null) => (value === null ? '–' : value ? '✓' : '✗');

export const plural = (count: number, one: string, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
