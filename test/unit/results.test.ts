import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readEvaluation, readMgsm, writeEvaluation } from '../../src/evaluation/files-node.ts';
import { parseMgsm, readGold } from '../../src/evaluation/mgsm.ts';
import { classifyEpisode, countToolErrors } from '../../src/evaluation/outcomes.ts';
import {
  buildEvaluation,
  type EvaluationFile,
  formatEvaluation,
  parseEvaluation,
} from '../../src/evaluation/results.ts';
import { combineUnits } from '../../src/experiment/units.ts';
import type { Episode, ToolCallRecord } from '../../src/rollout/episode.ts';
import { agentEvaluation } from '../support/evaluation-fixture.ts';

const folder = mkdtempSync(join(tmpdir(), 'shaderl-results-'));
afterAll(() => rmSync(folder, { recursive: true }));

const evaluation = agentEvaluation({ items: 4, seeds: [42, 1729], rate: 0.5, stream: 10, adapterSha256: null });
/** The message of the error that `edit` of a copy provokes. */
function refusal(edit: (copy: EvaluationFile) => void): string {
  const copy = structuredClone(evaluation);
  edit(copy);
  try {
    parseEvaluation(formatEvaluation(copy), 'runs/a/before.json');
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('accepted');
}

describe('evaluation files', () => {
  it('come back from disk as they were written, with no partial file left', () => {
    const file = join(folder, 'deep', 'before.json');
    writeEvaluation(file, evaluation);
    expect(readEvaluation(file)).toEqual(evaluation);
    expect(readdirSync(join(folder, 'deep'))).toEqual(['before.json']);
    expect(evaluation.totals).toMatchObject({ items: 4, samples: 8 });
  });

  it('are refused with file, field, value and remedy', () => {
    expect(refusal((e) => Object.assign(e.items[3]!, { outcome: 'great' }))).toMatchInlineSnapshot(
      `"reading runs/a/before.json: field items.3.outcome is "great"; wanted: Invalid option: expected one of "correct"|"wrong"|"no_answer"|"contradictory"|"truncated"|"infrastructure". Correct the field, or write the file again with \`shaderl evaluate --output\`."`,
    );
    expect(refusal((e) => Object.assign(e, { modelTreeSha256: 'b16' }))).toContain('field modelTreeSha256 is "b16"');
    expect(refusal((e) => Object.assign(e.sampling, { topk: 3 }))).toContain('sampling');
  });

  it('are refused when a sample occurs twice, has an undeclared seed, or the totals do not fit', () => {
    expect(refusal((e) => Object.assign(e.items[5]!, { id: 'final-000' }))).toMatchInlineSnapshot(
      `"reading runs/a/before.json: items.5 has id "final-000" and seed 1729, as items.4 has; wanted each (id, seed) once. Drop one of the two, or evaluate again."`,
    );
    expect(refusal((e) => Object.assign(e, { seeds: [42] }))).toContain(
      'items.4.seed is 1729; wanted one of seeds [42]',
    );
    expect(refusal((e) => Object.assign(e.totals, { correct: 99 }))).toContain('totals.correct is 99');
    expect(refusal((e) => void e.items.pop())).toContain('totals.samples is 8, but the items give 7');
    expect(() =>
      buildEvaluation({ ...withoutTotals(evaluation), items: [...evaluation.items, evaluation.items[0]!] }),
    ).toThrow('as items.0 has');
  });

  it('of one seed each are put together with their dropped tokens, counted only if all were', () => {
    const one = (seed: number, counts: object) =>
      buildEvaluation({
        ...withoutTotals(agentEvaluation({ items: 4, seeds: [seed], rate: 0.5, stream: 10, adapterSha256: null })),
        ...counts,
      });
    const both = combineUnits([one(42, { droppedTokens: 5 }), one(1729, { droppedTokens: 7 })], 'both');
    expect(both).toMatchObject({ droppedTokens: 12, seeds: [42, 1729], totals: evaluation.totals });
    expect(combineUnits([one(42, { droppedTokens: 5 }), one(1729, {})], 'both')).not.toHaveProperty('droppedTokens');
  });

  it('name the file when it is missing or no JSON', () => {
    expect(() => readEvaluation(join(folder, 'none.json'))).toThrow(/none\.json.*Check the path/);
    writeFileSync(join(folder, 'half.json'), formatEvaluation(evaluation).slice(0, 100));
    expect(() => readEvaluation(join(folder, 'half.json'))).toThrow(/half\.json: found text that is not JSON/);
  });
});

function withoutTotals({ schema: _schema, totals: _totals, ...rest }: EvaluationFile) {
  return rest;
}

describe('mgsm files', () => {
  it('give questions and exact gold answers', () => {
    const file = join(folder, 'own.tsv');
    writeFileSync(
      file,
      'Wie viel sind 2 und 3?\t5\nWie viele Meter?\t2,125\r\nWie viel Grad?\t-3\nWie viel Euro?\t29.00\n',
    );
    expect(readMgsm(file).map(({ id, gold }) => [id, gold])).toEqual([
      ['mgsm-de-001', '5'],
      ['mgsm-de-002', '2125'],
      ['mgsm-de-003', '-3'],
      ['mgsm-de-004', '29'],
    ]);
  });

  it('are refused with file and line', () => {
    expect(() => parseMgsm('Frage?\t5\nFrage ohne Antwort\n', 'own.tsv')).toThrow(/own\.tsv: line 2: found 1 tab/);
    expect(() => parseMgsm('Frage?\tfünf\n', 'own.tsv')).toThrow(/line 1: found the answer "fünf"/);
    expect(() => parseMgsm('Frage?\t5\n\nFrage?\t5\n', 'own.tsv')).toThrow(/line 2/);
    expect(() => parseMgsm(' \t5\n', 'own.tsv')).toThrow(/empty question/);
    expect(() => parseMgsm('', 'own.tsv')).toThrow(/empty file/);
    expect([readGold('1,23'), readGold('12,3456'), readGold('')]).toEqual([null, null, null]);
  });

  const published = process.env['SHADERL_MGSM_DE'] ?? '../shared/data/mgsm_de.tsv';
  it.skipIf(!existsSync(published))(
    `read the published German file (skipped where ${published} is missing; SHADERL_MGSM_DE names another place)`,
    () => {
      const items = readMgsm(published);
      expect(items).toHaveLength(250);
      const commas = readFileSync(published, 'utf8')
        .split('\n')
        .filter((line) => /\t\d+,\d+$/.test(line)).length;
      expect(commas).toBe(4);
      expect(items.every((item) => /^\d+$/.test(item.gold))).toBe(true);
      expect(
        items.filter((item) => ['2125', '114200', '276000', '5600'].includes(item.gold)).length,
      ).toBeGreaterThanOrEqual(4);
      expect(items[0]).toMatchObject({ id: 'mgsm-de-001', gold: '18' });
    },
  );
});

describe('agent outcomes', () => {
  const call = (edit: Partial<ToolCallRecord>): ToolCallRecord => ({
    span: [0, 1],
    status: 'ok',
    name: 'rechner',
    argumentsJson: '{}',
    observation: '4',
    dispatched: true,
    dropped: false,
    environmentError: false,
    ...edit,
  });
  const episode = (edit: Partial<Episode>, strict = false, answer: string | null = null): Episode => ({
    schema: 'shaderl.episode/1',
    taskId: 't',
    sessionId: 's',
    step: 0,
    group: 0,
    member: 0,
    seed: 1,
    policy: 'base',
    temperature: 1,
    promptLength: 0,
    ids: [],
    sources: [],
    mask: [],
    logprobs: [],
    truncatedLogprobs: [],
    turns: [],
    capped: false,
    discardedTokens: 0,
    verdict: { strict, reward: 0, parts: {}, invalidDispatches: 0, toolErrors: 0, answer, log: [] },
    infrastructure: null,
    seconds: 0,
    ...edit,
  });

  it('fall into one class each', () => {
    expect(classifyEpisode(episode({}, true, '4'))).toBe('correct');
    expect(classifyEpisode(episode({}, false, '4'))).toBe('wrong');
    expect(classifyEpisode(episode({}))).toBe('no_answer');
    expect(classifyEpisode(episode({ capped: true }, false, '4'))).toBe('truncated');
    expect(classifyEpisode(episode({ verdict: null, infrastructure: 'socket closed' }))).toBe('infrastructure');
    expect(classifyEpisode(episode({ infrastructure: 'verifier timed out' }, true, '4'))).toBe('infrastructure');
  });

  it('count tool errors by class', () => {
    const calls = [
      call({}),
      call({ status: 'invalid_json', dispatched: false }),
      call({ status: 'unknown_tool', dispatched: false }),
      call({ environmentError: true }),
      call({ environmentError: true, dropped: true }),
    ];
    expect(countToolErrors(episode({ turns: [{ span: [0, 9], stop: 'stop', calls }] }))).toEqual({
      environment: 2,
      unknown_tool: 1,
      invalid_json: 1,
      missing_arguments: 0,
      unclosed: 0,
      dropped: 1,
    });
  });
});
