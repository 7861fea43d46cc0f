// The German word problems: right answers, distinct questions, nothing in common with the lookup task.
import { describe, expect, it } from 'vitest';
import { GOODS, INSTRUCTIONS } from '../../src/environments/german-data.ts';
import { mathProblems } from '../../src/environments/german-math.ts';

/** Solves a problem from its text alone, by the numbers in it and a key phrase. */
function solve(question: string): number {
  const n = (question.match(/[0-9]+/g) ?? []).map(Number) as [number, number, number];
  if (question.includes('schenkt')) return n[0] + n[1];
  if (question.includes('Kiste')) return n[0] - n[1];
  if (question.includes('Dosen')) return n[0] * n[1];
  if (question.includes('gleichmäßig')) return n[0] / n[1];
  if (question.includes('-mal so viele')) return n[0] * (1 + n[1]);
  if (question.includes('besitzt')) return 2 * n[0] - n[1];
  if (question.includes('Kinokarten')) return n[2] - n[0] * n[1];
  if (question.includes('Seiten')) return n[0] + n[1] * n[2];
  if (question.includes('Runden')) return (n[0] + n[1]) * n[2];
  if (question.includes('Bus')) return n[0] - n[1] * n[2] - 1;
  throw new Error(`no rule for: ${question}`);
}

describe('mathProblems', () => {
  const problems = mathProblems(42, 1500);

  it('have the answer that follows from the text, a non-negative integer', () => {
    for (const { question, answer } of problems) {
      expect(solve(question), question).toBe(answer);
      expect(Number.isInteger(answer) && answer >= 0).toBe(true);
    }
  });

  it('are distinct, deterministic and prefix-stable, and differ by seed', () => {
    expect(new Set(problems.map((p) => p.question)).size).toBe(1500);
    expect(new Set(problems.map((p) => p.id)).size).toBe(1500);
    expect(mathProblems(42, 128)).toEqual(problems.slice(0, 128));
    expect(mathProblems(43, 1)[0]!.question).not.toBe(problems[0]!.question);
  });

  it('share no good and no instruction with the lookup task', () => {
    const starts = Object.values(INSTRUCTIONS).flatMap((texts) => texts.map((text) => text.split('{')[0]!));
    for (const { question } of problems) {
      expect(GOODS.some((good) => new RegExp(`(?<!\\p{L})${good}(?!\\p{L})`, 'u').test(question))).toBe(false);
      expect(starts.some((start) => question.startsWith(start))).toBe(false);
    }
  });

  it('never let a person act with themselves', () => {
    for (const { question } of problems) expect(/(\p{L}+) und \1(?!\p{L})/u.test(question)).toBe(false);
  });

  it('refuse a seed or count that they cannot honour', () => {
    expect(() => mathProblems(-1, 1)).toThrow('-1');
    expect(() => mathProblems(1, 20_001)).toThrow('20001');
  });

  it('produce all they promise', () => {
    expect(mathProblems(1, 20_000)).toHaveLength(20_000);
  });
});
