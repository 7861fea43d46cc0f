// How numbers and texts are written in a report. Not localised: one spelling, with a true minus sign.
// Invariant: `escapeHtml` is the only way by which text from outside enters the HTML.

/** Escapes text for element content and for quoted attributes; control characters that HTML forbids become U+FFFD. */
export function escapeHtml(text: string): string {
  return (
    text
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that must go
      .replace(/[\u0000-\u0008\u000B\u000C\u000E-\u001F]/g, '\uFFFD')
      .replaceAll('&', '&amp;')
      .replaceAll('<', '&lt;')
      .replaceAll('>', '&gt;')
      .replaceAll('"', '&quot;')
      .replaceAll("'", '&#39;')
  );
}

const minus = (text: string) => text.replace('-', '\u2212');
const SUPERSCRIPTS = '⁰¹²³⁴⁵⁶⁷⁸⁹';

/** A number as a multiple of a power of ten: 1.2e-4 is "1.2 × 10⁻⁴" (narrow spaces); `digits` after the point. */
export function formatPowerOfTen(value: number, digits?: number): string {
  const [mantissa, exponent] = value.toExponential(digits).split('e') as [string, string];
  const raised = exponent
    .replace('+', '')
    .replace('-', '⁻')
    .replace(/\d/g, (digit) => SUPERSCRIPTS[Number(digit)]!);
  return `${minus(mantissa)}\u202F×\u202F10${raised}`;
}

/** A number with about four significant digits; thousands are separated by a thin space. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value))
    return Number.isNaN(value) ? 'not a number' : minus(value > 0 ? 'infinite' : '-infinite');
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return minus(String(value).replace(/\B(?=(\d{3})+$)/g, '\u202F'));
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return formatPowerOfTen(value, 2);
  return minus(size >= 1000 ? formatNumber(Math.round(value)) : String(Number(value.toPrecision(4))));
}

/** A share as a percentage with one decimal: 0.4125 is "41.3 %". */
export function formatPercent(share: number): string {
  return Number.isFinite(share) ? minus(`${(100 * share).toFixed(1)}\u00A0%`) : 'none';
}

/** A difference of shares in percentage points, signed: "+31.3 points". */
export function formatPoints(difference: number): string {
  return `${formatSignedPoints(difference)}\u00A0points`;
}

/** The same without the unit: "+31.3". */
export function formatSignedPoints(difference: number): string {
  const points = (100 * difference).toFixed(1);
  const zero = Number(points) === 0;
  return minus(zero ? '0.0' : difference > 0 ? `+${points}` : points);
}

/** A signed count: "+3", "−2", "0". */
export function formatChange(change: number): string {
  return change > 0 ? `+${formatNumber(change)}` : formatNumber(change);
}

/** A duration: "4 min 12 s", "8.3 s", "2 h 05 min". */
export function formatSeconds(seconds: number): string {
  if (seconds < 60) return `${Number(seconds.toFixed(1))}\u00A0s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  if (hours > 0) return `${hours}\u00A0h ${String(minutes).padStart(2, '0')}\u00A0min`;
  return `${minutes}\u00A0min ${whole % 60}\u00A0s`;
}

/** A p-value with its relation: "= 0.0312" (four decimals) or "< 0.0001". */
export function formatP(p: number): string {
  return p < 1e-4 ? '<\u00A00.0001' : `=\u00A0${p.toFixed(4)}`;
}
