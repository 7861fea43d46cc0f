// What a reviewer looks for in an experiment's report.html is there, with its numbers, without opening another file.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseHTML } from 'linkedom';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { buildEvaluation } from '../../src/evaluation/results.ts';
import { runExperiment } from '../../src/experiment/driver.ts';
import type { Plan } from '../../src/experiment/plan.ts';
import type { ExperimentReport } from '../../src/experiment/report.ts';
import { renderExperimentHtml } from '../../src/experiment/report-html.ts';
import { statements } from '../../src/experiment/statements.ts';
import { experimentReport } from '../../workers/experiment/report-node.ts';
import { preparedPlan, smallPorts, smallRecipe, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-report-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let report: ExperimentReport;
let page: Document;
let plan: Plan;

beforeAll(async () => {
  const prepared = await preparedPlan(base, writeInputs(base), smallRecipe);
  plan = prepared.plan;
  const ports = await smallPorts(prepared, {
    change: ({ evaluate }) => ({
      // One unit with a call of each class, and one capped reply.
      async evaluate(unit, ...asked) {
        const answer = await evaluate(unit, ...asked);
        if (unit.name !== 'final-agent-baseline-seed-42') return answer;
        const { totals: _totals, schema: _schema, ...evaluation } = answer.evaluation;
        const toolErrorClasses = {
          environment: 1,
          unknown_tool: 2,
          invalid_json: 3,
          missing_arguments: 4,
          unclosed: 5,
          dropped: 6,
        };
        const [first, ...rest] = evaluation.items;
        const items = [{ ...first!, toolErrorClasses, capped: true, discardedTokens: 7 }, ...rest];
        return { ...answer, evaluation: buildEvaluation({ ...evaluation, items, droppedTokens: 11 }) };
      },
    }),
  });
  await runExperiment(prepared, ports, { resume: false, qualificationOnly: false });
  report = await experimentReport(prepared.folder);
}, 60_000);

const render = (shown: ExperimentReport) => {
  page = parseHTML(renderExperimentHtml(shown)).document as unknown as Document;
};
beforeEach(() => render(report));

/** Rows of the table whose caption begins so, as texts by column. */
function rowsOf(caption: string): Record<string, string>[] {
  const table = [...page.querySelectorAll('table')].find((one) =>
    one.querySelector('caption')?.textContent?.startsWith(caption),
  );
  expect(table, caption).toBeDefined();
  const head = [...table!.querySelectorAll('thead th')].map((cell) => cell.textContent ?? '');
  return [...table!.querySelectorAll('tbody tr')].map((row) =>
    Object.fromEntries([...row.children].map((cell, i) => [head[i], cell.textContent ?? ''])),
  );
}

describe('report.html of an experiment', () => {
  test('has a unit or a count on every axis, and both axes of every figure are labelled', () => {
    const figures = [...page.querySelectorAll('figure')];
    expect(figures.length).toBeGreaterThan(6);
    for (const figure of figures) {
      const labels = [...figure.querySelectorAll('svg.plot g[aria-label$="axis label"] text')].map((one) =>
        (one.textContent ?? '').replace(/[↑→]/g, '').trim(),
      );
      expect(labels.length, figure.id).toBeGreaterThan(0);
      for (const label of labels) {
        expect(label).toMatch(/optimizer step|\(.+\)$|norm$|rate$|per rollout$/);
      }
    }
  });

  test('states rule, points, eligibility and rank of the selection', () => {
    const { selection, selectionRule } = report.content;
    expect(page.querySelector('main')!.textContent).toContain(selectionRule);
    const rows = rowsOf('DEV points');
    expect(rows.map(({ policy }) => policy)).toEqual(['baseline', 'step 2', 'step 4']);
    const of = selection!.points.map(({ eligible, rank }) => [
      eligible ? 'yes' : 'no',
      rank === null ? '' : String(rank),
    ]);
    expect(rows.slice(1).map((row) => [row['eligible'], row['rank']])).toEqual(of);
  });

  test('has the paired difference with its interval and test, over all seeds and for each', () => {
    const rows = rowsOf('Paired by item');
    const { final } = report.content;
    expect(rows.map((row) => row[''])).toEqual(['all seeds', 'seed 42', 'seed 1729']);
    const interval = final!.difference.interval!;
    const points = (value: number) => (100 * value).toFixed(1).replace('-', '\u2212');
    expect(rows[0]).toMatchObject({ won: String(final!.wins), lost: String(final!.losses) });
    expect(rows[0]!['95 % interval (points)']!.replaceAll('+', '')).toBe(
      `${points(interval.low)} to ${points(interval.high)}`,
    );
    expect(
      [...page.querySelectorAll('table')].filter((one) => one.textContent!.includes('no observed loss')),
    ).toHaveLength(1);
  });

  test('counts tool errors by class, caps, and physical tokens apart from retained ones', () => {
    const [classes] = rowsOf('Tool errors by class').filter(
      (row) => row['suite and policy'] === 'final\u00a0agent, baseline',
    );
    expect(Object.values(classes!).slice(1)).toEqual(['1', '2', '3', '4', '5', '6']);
    const unit = rowsOf('One row a suite').find(
      (row) => row['suite'] === 'final\u00a0agent' && row['policy'] === 'baseline' && row['seed'] === '42',
    );
    expect(unit).toMatchObject({ capped: '1', retained: '60', discarded: '7', dropped: '11', physical: '78' });
    const caps = rowsOf('Caps');
    expect(caps.map((row) => row['set']!.replace('\u00a0', ' '))).toEqual([
      'training',
      'DEV agent',
      'DEV math',
      'final agent',
      'retention math',
    ]);
    expect(caps[3]).toMatchObject({
      'cap (tokens)': '64',
      'cut off: baseline': '1 of 12',
      'cut off: trained steps': '0 of 12',
    });
  });

  test('adds dropped tokens to the physical ones where they were counted, and keeps them out of the content', () => {
    const counts = () =>
      rowsOf('Training in counts')
        .filter((row) => row['']!.startsWith('tokens drawn'))
        .map(({ value }) => value);
    expect(counts()).toEqual(['not counted', '12']);
    const { record, content } = report;
    expect(record.droppedTokens).toEqual({ units: { 'final-agent-baseline-seed-42': 11 } });
    render({ ...report, record: { ...record, droppedTokens: { ...record.droppedTokens, training: 5 } } });
    expect(counts()).toEqual(['5', '17']);
    expect(JSON.stringify(content)).not.toMatch(/dropped_?tokens/i);
    const other = rowsOf('One row a suite').find(({ seed }) => seed === '1729');
    expect(other).toMatchObject({ dropped: 'not counted' });
  });

  test('says where an answer was held below the recipe, beside the cap and among what it cannot show', () => {
    const { caps } = report.content;
    const sets = caps.sets.map((one) => (one.set === 'retention-math' ? { ...one, cap: 33 } : one));
    const held = { ...report, content: { ...report.content, caps: { ...caps, sets } } };
    render(held);
    const cells = rowsOf('Caps').map((row) => Object.values(row)[4]);
    expect(cells).toEqual(['as asked', 'as asked', 'as asked', 'as asked', 'clamped to the positions']);
    const said = (content: ExperimentReport['content']) =>
      statements(plan, content).cannotShow.filter((line) => line.startsWith('How retention-math goes with 64 tokens'));
    expect([said(report.content).length, said(held.content).length]).toEqual([0, 1]);
    expect(said(held.content)[0]).toMatch(/1\u202f024 positions leave 33, and every answer was held to that\.$/);
  });

  test('never lets a merged model that is not equivalent stand for the adapter', () => {
    const { content } = report;
    const merge = { ...content.merge!, verdict: 'not equivalent' };
    const merged = { ...plan, recipe: { ...plan.recipe, final: { ...plan.recipe.final, policy: 'merged' as const } } };
    const said = (of: Plan, verdict: string) =>
      statements(of, { ...content, merge: { ...merge, verdict } }).cannotShow.some((line) =>
        line.startsWith('How the sealed adapter does'),
      );
    expect([said(merged, 'not equivalent'), said(merged, 'equivalent'), said(plan, 'not equivalent')]).toEqual([
      true,
      false,
      false,
    ]);
  });

  test('of an experiment that has only been trained says what is not made yet, and has the rest', () => {
    const none = { selection: null, final: null, retention: null, recommendation: null, merge: null, units: [] };
    render({ ...report, content: { ...report.content, ...none } });
    const missing = [...page.querySelectorAll('p')].filter(({ textContent }) => textContent === 'Not made yet.');
    expect(missing).toHaveLength(3);
    expect(rowsOf('Caps')).toHaveLength(5);
    expect(rowsOf('Training in counts')[0]).toMatchObject({ value: '4' });
  });

  test('has frozen settings, run time by stage, and a journal line for every evaluation, step and stage', () => {
    expect(rowsOf('Recipe small').map((row) => row[''])).toContain('optimizer');
    expect(rowsOf('Run time by stage').map((row) => row['stage'])).toHaveLength(8);
    const index = rowsOf('The line of a journal');
    expect(index).toHaveLength(14 + 4 + 8);
    for (const row of index) expect(row['SHA-256 of the line']).toMatch(/^[0-9a-f]{64}$/);
  });
});
