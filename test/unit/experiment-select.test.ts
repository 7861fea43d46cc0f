import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Comparison } from '../../src/evaluation/compare.ts';
import { recommendation, retentionVerdict } from '../../src/experiment/retention.ts';
import { type DevPoint, selectCandidate } from '../../src/select.ts';

const point = (step: number, strict: number, mathCorrect: number, toolErrors = 0): DevPoint => ({
  step,
  strict,
  mathCorrect,
  toolErrors,
  agentSamples: 64,
  mathSamples: 128,
});
const baseline = point(0, 20, 100, 5);

describe('the selection rule', () => {
  test('takes the most strict successes among the eligible steps', () => {
    const { selected, assessed, assessment, points } = selectCandidate(baseline, [
      point(64, 25, 100),
      point(128, 30, 101),
      point(256, 29, 110),
    ]);
    expect({ selected, assessed, assessment }).toEqual({ selected: 128, assessed: 128, assessment: 'candidate' });
    expect(points.map(({ rank }) => rank)).toEqual([3, 1, 2]);
  });

  test('breaks a tie by fewer tool errors, then by the earlier step, whatever the order given', () => {
    const three = [point(256, 30, 100, 2), point(128, 30, 100, 1), point(64, 30, 100, 1)];
    expect(selectCandidate(baseline, three).selected).toBe(64);
    expect(selectCandidate(baseline, [...three].reverse()).selected).toBe(64);
    expect(selectCandidate(baseline, three.slice(0, 2)).selected).toBe(128);
  });

  test('wants math at least equal, and strict success more', () => {
    const judged = selectCandidate(baseline, [point(64, 21, 100), point(128, 64, 99), point(256, 20, 128)]);
    expect(judged.points.map(({ eligible }) => eligible)).toEqual([true, false, false]);
    expect(judged.points[1]!.reasons).toEqual(["math correctness 99 is below the baseline's 100"]);
    expect(judged.points[2]!.reasons).toEqual(["strict successes 20 are not more than the baseline's 20"]);
  });

  test('keeps the baseline if no step is eligible, and assesses the last step as a diagnostic', () => {
    const { selected, assessed, assessment } = selectCandidate(baseline, [
      point(128, 20, 128),
      point(256, 5, 2),
      point(64, 64, 0),
    ]);
    expect({ selected, assessed, assessment }).toEqual({ selected: null, assessed: 256, assessment: 'diagnostic' });
  });

  test('refuses evaluations of other numbers of samples, a step twice, and none', () => {
    const other = { ...point(64, 21, 100), mathSamples: 127 };
    expect(() => selectCandidate(baseline, [other])).toThrow(/step 64 with 127 math and 64 agent samples; wanted/);
    expect(() => selectCandidate(baseline, [point(64, 1, 1), point(64, 1, 1)])).toThrow(/found step 64 twice/);
    expect(() => selectCandidate(baseline, [])).toThrow(/no DEV evaluation/);
  });

  test('never selects a step that a direct reading of the rule would not', () => {
    const anyPoint = fc.record({
      strict: fc.integer({ min: 0, max: 4 }),
      math: fc.integer({ min: 0, max: 3 }),
      errors: fc.integer({ min: 0, max: 2 }),
    });
    fc.assert(
      fc.property(anyPoint, fc.array(anyPoint, { minLength: 1, maxLength: 5 }), (base, list) => {
        const points = list.map((p, i) => point(i + 1, p.strict, p.math, p.errors));
        const from = point(0, base.strict, base.math, base.errors);
        const eligible = points.filter((p) => p.mathCorrect >= from.mathCorrect && p.strict > from.strict);
        const { selected } = selectCandidate(from, points);
        if (eligible.length === 0) {
          expect(selected).toBeNull();
          return;
        }
        const chosen = eligible.find((p) => p.step === selected)!;
        for (const p of eligible) {
          const beaten = p.strict > chosen.strict || (p.strict === chosen.strict && p.toolErrors < chosen.toolErrors);
          expect(beaten).toBe(false);
        }
      }),
    );
  });
});

const compared = (a: number, b: number, seeds: [number, number, number][], leftOut = 0) =>
  ({
    a: { correct: a },
    b: { correct: b },
    perSeed: seeds.map(([seed, x, y]) => ({ seed, a: x, b: y })),
    leftOut,
  }) as Comparison;

describe('the retention requirement', () => {
  test('is met by no observed loss overall and at each seed', () => {
    expect(
      retentionVerdict(
        compared(10, 10, [
          [42, 5, 5],
          [7, 5, 5],
        ]),
      ).met,
    ).toBe(true);
  });
  test('is not met by a loss at one seed that the other makes good', () => {
    const verdict = retentionVerdict(
      compared(10, 12, [
        [42, 5, 4],
        [7, 5, 8],
      ]),
    );
    expect(verdict).toMatchObject({ met: false, overall: { met: true }, perSeed: [{ met: false }, { met: true }] });
  });
  test('is not met where a sample was not observed', () => {
    expect(retentionVerdict(compared(10, 10, [[42, 10, 10]], 1)).met).toBe(false);
  });
  test('never promotes a diagnostic, and takes a candidate back that lost', () => {
    const [kept, lost] = [
      retentionVerdict(compared(1, 2, [[42, 1, 2]])),
      retentionVerdict(compared(2, 1, [[42, 2, 1]])),
    ];
    expect(recommendation('diagnostic', 256, kept)).toMatchObject({ recommended: 'baseline', step: null });
    expect(recommendation('candidate', 128, lost)).toMatchObject({ recommended: 'baseline', step: null });
    expect(recommendation('candidate', 128, kept)).toMatchObject({ recommended: 'candidate', step: 128 });
  });
});
