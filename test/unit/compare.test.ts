import { describe, expect, it } from 'vitest';
import { compareEvaluations } from '../../src/evaluation/compare.ts';
import { buildEvaluation, type EvaluationFile, type EvaluationItem } from '../../src/evaluation/results.ts';
import { agentEvaluation } from '../support/evaluation-fixture.ts';

const before = agentEvaluation({ items: 20, seeds: [42, 1729], rate: 0.4, stream: 10, adapterSha256: null });
const after = agentEvaluation({ items: 20, seeds: [42, 1729], rate: 0.7, stream: 30, adapterSha256: 'c'.repeat(64) });

/** A copy with other items or settings, completed again. */
function edited(file: EvaluationFile, edit: Partial<EvaluationFile>): EvaluationFile {
  const { schema: _schema, totals: _totals, ...rest } = { ...structuredClone(file), ...edit };
  return buildEvaluation(rest);
}
const withItems = (file: EvaluationFile, change: (item: EvaluationItem, index: number) => EvaluationItem) =>
  edited(file, { items: file.items.map((item, i) => change(structuredClone(item), i)) });

describe('compareEvaluations', () => {
  it('refuses files that are no pair, and names the first difference', () => {
    const files: [string, string] = ['before.json', 'after.json'];
    const compare = (b: EvaluationFile) => () => compareEvaluations(before, b, { files });
    expect(
      compare(edited(after, { sampling: { ...after.sampling, temperature: 1 } })),
    ).toThrowErrorMatchingInlineSnapshot(
      `[EvaluationError: comparing before.json with after.json: sampling.temperature differs: 0.6 against 1; wanted the same items, seeds, suite and sampling settings. Evaluate one of the two again with the settings of the other.]`,
    );
    expect(compare(edited(after, { suite: 'math' }))).toThrow('suite differs');
    expect(compare(edited(after, { family: 'matrix' }))).toThrow('family differs');
    expect(compare(edited(after, { seeds: [42, 1729, 7] }))).toThrow('seeds differs: [42,1729] against [42,1729,7]');
    expect(compare(edited(after, { items: after.items.slice(1) }))).toThrow(
      'item "final-000" with seed 42 is in before.json and not in after.json',
    );
    const other = withItems(after, (item, i) => (i === 0 ? { ...item, id: 'final-999' } : item));
    expect(compare(other)).toThrow('item "final-000" with seed 42');
    const smaller = edited(before, { items: before.items.slice(1) });
    expect(() => compareEvaluations(smaller, after, { files })).toThrow('is in after.json and not in before.json');
  });

  it('pairs by id and seed, whatever the order of the items', () => {
    const turned = edited(after, { items: [...after.items].reverse() });
    expect(compareEvaluations(before, turned, { seed: 1 })).toEqual(compareEvaluations(before, after, { seed: 1 }));
  });

  it('counts wins, losses and ties per item, with all seeds of an item together', () => {
    const strict = (want: (i: number, seed: number) => boolean) => (item: EvaluationItem) => {
      const ok = want(Number(item.id.slice(6)), item.seed);
      return { ...item, strict: ok, outcome: ok ? ('correct' as const) : ('wrong' as const) };
    };
    // Item 0 is lost at both seeds, item 1 is won at one and lost at the other, items 2 to 5 are won at one seed.
    const a = withItems(
      before,
      strict((i, seed) => i === 0 || (i === 1 && seed === 42)),
    );
    const b = withItems(
      after,
      strict((i, seed) => (i === 1 && seed === 1729) || (i >= 2 && i <= 5 && seed === 42)),
    );
    const result = compareEvaluations(a, b, { seed: 1 });
    expect(result).toMatchObject({ items: 20, samples: 40, wins: 4, losses: 1, ties: 15 });
    expect(result.mcnemar).toMatchObject({ wins: 4, losses: 1, pValue: 0.375 });
    expect(result.difference.difference).toBe((5 - 3) / 40);
    expect(result.perSeed).toEqual([
      { seed: 42, samples: 20, a: 2, b: 4, wins: 4, losses: 2 },
      { seed: 1729, samples: 20, a: 1, b: 1, wins: 1, losses: 1 },
    ]);
  });

  it('leaves samples of a broken service out of both arms and counts them', () => {
    const broken = withItems(after, (item, i) => {
      if (i >= 5) return item;
      const { strict: _strict, reward: _reward, ...rest } = item;
      return { ...rest, outcome: 'infrastructure' };
    });
    const result = compareEvaluations(before, broken, { seed: 1 });
    expect(result).toMatchObject({ leftOut: 5, samples: 35, items: 20 });
    expect(result.outcomes.infrastructure).toEqual({ a: 0, b: 5, change: 5 });
    const dead = withItems(after, (item) => ({ ...item, outcome: 'infrastructure' }));
    expect(() => compareEvaluations(before, dead)).toThrow('none was scored in both');
  });

  it('reports caps, malformed answers, tool errors, tokens and time apart from the scores', () => {
    const result = compareEvaluations(before, after, { seed: 1 });
    const sum = (file: EvaluationFile, of: (item: EvaluationItem) => number) =>
      file.items.reduce((n, i) => n + of(i), 0);
    expect(result.capped.a).toBe(sum(before, (i) => Number(i.capped)));
    expect(result.toolErrors.b).toBe(sum(after, (i) => i.toolErrors ?? 0));
    expect(result.sampledTokens).toEqual({
      a: before.totals.sampledTokens,
      b: after.totals.sampledTokens,
      change: after.totals.sampledTokens - before.totals.sampledTokens,
    });
    expect(result.malformedAnswers.a).toBe(before.totals.byOutcome.no_answer + before.totals.byOutcome.contradictory);
    expect(result.seconds).toEqual({ a: 10, b: 10, change: 0 });
    const { correct, wrong } = before.totals.byOutcome;
    expect(result.accuracyGivenAnswer.a).toBe(correct / (correct + wrong));
  });

  it('says so when both files are of the same weights', () => {
    const result = compareEvaluations(before, before, { seed: 1 });
    expect(result.notes).toContain('The two have the same weights.');
    expect(result.difference.interval).toEqual({ low: 0, high: 0 });
    expect(result.mcnemar.pValue).toBe(1);
  });
});
