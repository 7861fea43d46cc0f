// What an experiment says of the time that is left: only of work whose kind was timed, with what it rests on.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { timeLeftRows } from '../../cli/commands/status.ts';
import { runExperiment } from '../../src/experiment/driver.ts';
import { parseRecipe } from '../../src/experiment/recipe.ts';
import { experimentStatus } from '../../src/experiment/status-node.ts';
import { type TimeLeftSources, timeLeft } from '../../src/experiment/time-left.ts';
import { devUnits, finalUnits } from '../../src/experiment/units.ts';
import { type JournalEntry, STAGES, type Stage } from '../../src/journal-events.ts';
import { preparedPlan, smallPorts, writeInputs } from '../support/experiment-fixture.ts';

const recipe = parseRecipe(
  JSON.stringify({
    training: { steps: 64, checkpoints: { every: 32 }, data: { count: 256 } },
    qualification: { steps: 4, stopAfter: 2 },
    dev: { steps: [32, 64], episodes: 10, mathItems: 20 },
    final: { episodes: 40, seeds: [42, 7] },
    retention: { items: 50, seeds: [42] },
  }),
  'r',
);
const names = devUnits(recipe).map(({ name }) => name);

/** Journal entries, a second apart unless `at` says when. */
function journal(...events: { kind: string; at?: number; data: object }[]): JournalEntry[] {
  return events.map(({ kind, data, at }, index) => {
    const time = new Date(1000 * (at ?? index)).toISOString();
    return { index, prev: '', sha256: '', time, kind, data } as unknown as JournalEntry;
  });
}
const evaluated = (name: string, items: number, seconds: number, at?: number) => ({
  kind: 'evaluation',
  data: { name, items, seconds },
  ...(at === undefined ? {} : { at }),
});

const passed = (until: Stage) => new Set(STAGES.slice(0, STAGES.indexOf(until)));
const left = (stage: Stage, changes: Partial<TimeLeftSources> = {}) =>
  timeLeft({
    recipe,
    entries: [],
    done: passed(stage),
    open: stage,
    trainingSteps: [],
    qualificationSteps: [],
    live: true,
    reusesBaseline: false,
    ...changes,
  });

describe('an estimate of the time left', () => {
  test('is none before anything was timed, nor after one step, which compiles the kernels', () => {
    const none = { stageSeconds: null, runSeconds: null, basis: [] };
    expect(left('preflight')).toEqual({ stage: 'preflight', without: [...STAGES], ...none });
    expect(left('qualification', { qualificationSteps: [30] })).toMatchObject(none);
  });

  test('of the qualification covers all its branches, and the training at the same pace', () => {
    const timed = { qualificationSteps: [12, 8] };
    expect(left('qualification', timed)).toEqual({
      stage: 'qualification',
      stageSeconds: 10 * 10,
      runSeconds: 10 * 10 + 64 * 10,
      basis: [
        '10 steps of the qualification at the pace of 2 steps of the qualification',
        '64 training steps at the pace of 2 steps of the qualification',
      ],
      without: ['dev', 'selection', 'final', 'retention', 'report'],
    });
    // A qualification that was interrupted is made again whole.
    expect(left('qualification', { ...timed, live: false })).toMatchObject({ stageSeconds: 12 * 10 });
  });

  test('of the training is at the pace of its last ten steps', () => {
    const trainingSteps = [...Array.from({ length: 10 }, () => 100), ...Array.from({ length: 10 }, () => 3)];
    expect(left('training', { trainingSteps, qualificationSteps: [50, 50] })).toMatchObject({
      stageSeconds: 44 * 3,
      runSeconds: 44 * 3,
      basis: ['44 training steps at the pace of the last 10'],
    });
  });

  test('of evaluations is by sample, a suite by its own kind, less what the one in hand has had', () => {
    const start = { kind: 'stage-start', at: 0, data: { stage: 'dev' } };
    const entries = journal(start, evaluated(names[0]!, 10, 50, 50), evaluated(names[1]!, 20, 40, 90));
    // Two of each suite are left: 2 x 50 s and 2 x 40 s.
    const dev = left('dev', { entries });
    expect(dev).toEqual({
      stage: 'dev',
      stageSeconds: 180,
      runSeconds: 180 + 4 * 40 * 5 + 2 * 50 * 2,
      basis: [
        '2 dev-agent at the pace of 1 dev-agent evaluation',
        '2 dev-math at the pace of 1 dev-math evaluation',
        '4 final-agent at the pace of 1 dev-agent evaluation',
        '2 retention-math at the pace of 1 dev-math evaluation',
      ],
      without: ['selection', 'report'],
    });
    const beat = (at: number) => [...entries, ...journal({ kind: 'heartbeat', at, data: {} })];
    expect(left('dev', { entries: beat(105) })).toMatchObject({ stageSeconds: 165 });
    expect(left('dev', { entries: beat(900) })).toMatchObject({ stageSeconds: 130 });
    // What a dead process had in hand is lost.
    expect(left('dev', { entries: beat(105), live: false })).toMatchObject({ stageSeconds: 180 });
  });

  test('of a stage is none while a suite of it was not timed', () => {
    const entries = journal(evaluated(names[0]!, 10, 50));
    expect(left('dev', { entries })).toMatchObject({ stageSeconds: null, runSeconds: 4 * 40 * 5 });
  });

  test('counts no evaluation of the first arm as time, and none that will be taken over', () => {
    const entries = journal(evaluated(names[0]!, 10, 0), evaluated(names[1]!, 20, 0));
    expect(left('dev', { entries, reusesBaseline: true })).toMatchObject({ runSeconds: null });
    const timed = [...entries, ...journal(evaluated(names[2]!, 10, 50), evaluated(names[3]!, 20, 40))];
    expect(left('dev', { entries: timed, reusesBaseline: true })).toMatchObject({
      stageSeconds: 90,
      runSeconds: 90 + 2 * 40 * 5 + 50 * 2,
    });
  });

  test('of the final stage goes by its own evaluations as soon as there are some', () => {
    const [first] = finalUnits(recipe, 64);
    const entries = journal(evaluated(names[0]!, 10, 50), evaluated(first!.name, 40, 40));
    expect(left('final', { entries })).toMatchObject({ stageSeconds: 3 * 40 });
  });

  test('is gone when all stages have passed', () => {
    expect(left('report', { done: new Set(STAGES) })).toBeNull();
  });
});

describe('shaderl status', () => {
  const budget = { wallSeconds: 1000, chargedSeconds: 0, leftSeconds: 1000 };
  test('says what is left, of what that is an estimate, and what is not in it', () => {
    const training = left('training', { trainingSteps: [10, 10] });
    expect(timeLeftRows({ timeLeft: training, budget })).toEqual([
      [
        'time left',
        'training: about 10 min 20 s left; run: at least 10 min 20 s left, without dev, selection, final, retention, report',
      ],
      ['estimated from', '62 training steps at the pace of the last 2'],
    ]);
    const entries = journal(evaluated(names[0]!, 10, 50), evaluated(names[1]!, 20, 40));
    expect(timeLeftRows({ timeLeft: left('dev', { entries }), budget })[0]).toEqual([
      'time left',
      'dev: about 3 min 0 s left; run: about 19 min 40 s left, without selection, report; more than the budget has left',
    ]);
  });
  test('says nothing where nothing is known', () => {
    expect(timeLeftRows({ timeLeft: left('preflight'), budget })).toEqual([]);
    expect(timeLeftRows({ timeLeft: null, budget })).toEqual([]);
  });

  const base = mkdtempSync(join(tmpdir(), 'shaderl-left-'));
  afterAll(() => rmSync(base, { recursive: true, force: true }));
  test('reads the steps of the qualification and of the training from the folder', async () => {
    const plan = await preparedPlan(base, writeInputs(base));
    const seen: unknown[] = [];
    const look = async () => seen.push((await experimentStatus(plan.folder)).timeLeft);
    const ports = await smallPorts(plan, {
      change: ({ train, branch }) => ({
        async branch(...args) {
          await branch(...args);
          await look();
        },
        async train(...args) {
          await look();
          return train(...args);
        },
      }),
    });
    await runExperiment(plan, ports, { resume: false, qualificationOnly: false });
    const { steps } = plan.plan.recipe.qualification;
    const work = (of: number) => `4 training steps at the pace of ${of} steps of the qualification`;
    // No lock is held here, so the qualification counts whole. The fixture's steps take a second each.
    expect(seen[0]).toMatchObject({ stage: 'qualification', stageSeconds: 3 * steps, runSeconds: 3 * steps + 4 });
    expect(seen.at(-1)).toMatchObject({ stage: 'training', stageSeconds: 4, basis: [work(3 * steps)] });
    expect((await experimentStatus(plan.folder)).timeLeft).toBeNull();
  }, 60_000);
});
