// Public bug case G1, in reports: too many samples lost by a service make a comparison incomplete, never less accurate.
import { describe, expect, it } from 'vitest';
import { compareEvaluations } from '../../src/evaluation/compare.ts';
import { incompleteNote } from '../../src/evaluation/outcomes.ts';
import type { EvaluationFile } from '../../src/evaluation/results.ts';
import { agentEvaluation } from '../support/evaluation-fixture.ts';

/** The first `lost` samples of an evaluation turned into failures of the service. */
function withLost(evaluation: EvaluationFile, lost: number): EvaluationFile {
  const items = evaluation.items.map((item, i) =>
    i < lost ? { ...item, outcome: 'infrastructure' as const, strict: false } : item,
  );
  return { ...evaluation, items };
}

const arm = (stream: number) =>
  agentEvaluation({ items: 40, seeds: [42], rate: 0.5, stream, adapterSha256: stream === 100 ? null : 'b'.repeat(64) });

describe('G1: samples that a failed service lost', () => {
  it('do not lower the rate of an arm: its correct ones are divided by what was scored', () => {
    const whole = compareEvaluations(arm(100), arm(200));
    const parted = compareEvaluations(arm(100), withLost(arm(200), 10));
    const kept = arm(200).items.slice(10);
    expect(parted.b.samples).toBe(30);
    expect(parted.b.rate).toBe(kept.filter(({ strict }) => strict === true).length / 30);
    expect(parted.a.samples).toBe(30);
    expect(whole.leftOut).toBe(0);
  });

  it('make the comparison incomplete, with both counts, where they are more than 5 %', () => {
    expect(compareEvaluations(arm(100), withLost(arm(200), 2)).notes.join()).not.toContain('Incomplete');
    expect(compareEvaluations(arm(100), withLost(arm(200), 3)).notes[0]).toBe(
      'Incomplete: a failed service lost 3 of 40 samples (7.5 %, more than 5 %), so the rates are those of the others ' +
        'alone. Evaluate again with a working service.',
    );
  });

  it('are counted over both arms together: a sample lost in either is lost in the pair', () => {
    const [a, b] = [withLost(arm(100), 2), arm(200)];
    const last = b.items.length - 2;
    const items = b.items.map((item, i) => (i >= last ? { ...item, outcome: 'infrastructure' as const } : item));
    expect(compareEvaluations(a, { ...b, items }).notes[0]).toContain('lost 4 of 40 samples');
  });

  it('are no reason for a note where nothing was evaluated or nothing was lost', () => {
    expect([incompleteNote(0, 0), incompleteNote(0, 40), incompleteNote(2, 40)]).toEqual([null, null, null]);
    expect(incompleteNote(40, 40)).toContain('100.0 %');
  });
});
