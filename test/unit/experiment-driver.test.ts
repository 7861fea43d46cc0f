import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type DriverOptions, type ExperimentOutcome, runExperiment } from '../../src/experiment/driver.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import { experimentProgress } from '../../src/experiment/progress.ts';
import { experimentStatus } from '../../src/experiment/status-node.ts';
import { readJournal } from '../../src/journal.ts';
import { STAGES } from '../../src/journal-events.ts';
import { streamWords } from '../../src/lib/rng.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { experimentReport } from '../../workers/experiment/report-node.ts';
import { folderFindings, stopInTraining } from '../support/experiment-findings.ts';
import {
  type Inputs,
  preparedPlan,
  type SmallPortsOptions,
  smallPorts,
  smallRecipe,
  writeInputs,
} from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-driver-'));
// With hundreds of seeds there are many files to remove.
afterAll(() => rmSync(base, { recursive: true, force: true }), 120_000);
let inputs: Inputs;
type Prepared = LoadedPlan & { folder: string };
let whole: Prepared;
let wholeContent: string;

const once: DriverOptions = { resume: false, qualificationOnly: false };
const again: DriverOptions = { resume: true, qualificationOnly: false };

async function attempt(
  plan: Prepared,
  options: DriverOptions,
  ports: SmallPortsOptions = {},
): Promise<ExperimentOutcome> {
  return runExperiment(plan, await smallPorts(plan, ports), options);
}
const entriesOf = async ({ folder }: Prepared) =>
  (await readJournal(createNodeStorage(folder), 'journal.jsonl')).entries;
const contentOf = async ({ folder }: Prepared) => (await experimentReport(folder)).contentSha256;
const refusal = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable('it was not refused'),
    (error: { name: string; code: string; message: string }) => error,
  );

beforeAll(async () => {
  inputs = writeInputs(base);
  whole = await preparedPlan(base, inputs);
  expect(await attempt(whole, once)).toMatchObject({ status: 'finished', next: null });
  wholeContent = await contentOf(whole);
}, 60_000);

describe('an uninterrupted experiment', () => {
  test('passes every stage in order, and its journal says so', async () => {
    const ends = (await entriesOf(whole)).flatMap((entry) => (entry.kind === 'stage-end' ? [entry.data.stage] : []));
    expect(ends).toEqual(STAGES);
    expect(experimentProgress(await entriesOf(whole))).toMatchObject({
      next: null,
      attempts: [{ status: 'finished' }],
    });
  });

  test('verifies without a device, its report rebuilt from the files', async () => {
    expect(await folderFindings(whole)).toEqual([]);
  });

  test('is not run a second time', async () => {
    const before = readFileSync(join(whole.folder, 'journal.jsonl'));
    expect(await attempt(whole, again)).toMatchObject({ status: 'finished' });
    expect(readFileSync(join(whole.folder, 'journal.jsonl'))).toEqual(before);
  });

  test.each([
    ['is written again where it was cut', [], true],
    [
      'stays as it is after the program has changed',
      [{ file: 'src/train.ts', frozen: 'a', found: 'b', place: null }],
      false,
    ],
  ])('its report %s, when it is run again', async (_name, differences, written) => {
    const file = join(whole.folder, 'report.json');
    const before = readFileSync(file);
    const cut = before.subarray(0, before.length - 2);
    writeFileSync(file, cut);
    const change: SmallPortsOptions['change'] = () => ({ planDifferences: async () => differences });
    expect(await attempt(whole, again, { change })).toMatchObject({ status: 'finished' });
    expect(readFileSync(file)).toEqual(written ? before : cut);
    writeFileSync(file, before);
  });

  test('has a report that releases nothing and names a journal line for every evaluation and step', async () => {
    const { release_eligible, content, record } = await experimentReport(whole.folder);
    expect([release_eligible, content.release_eligible]).toEqual([false, false]);
    expect(content.units).toHaveLength(14);
    const named = new Set(record.evidence.map(({ what }) => what));
    expect(content.units.filter(({ unit }) => !named.has(unit.name))).toEqual([]);
    expect(content.training?.steps.filter(({ step }) => !named.has(`training step ${step}`))).toEqual([]);
    expect(record.inspection.state).toBe('open');
  });

  test('marks the language inspection done only when every blank is filled and somebody is named', async () => {
    const file = join(whole.folder, 'language-inspection.json');
    const blank = readFileSync(file, 'utf8');
    const inspection = JSON.parse(blank);
    expect(inspection.replies).toHaveLength(2 * 2 * 2);
    for (const reply of inspection.replies) Object.assign(reply, { language: 'German', format: 'as asked' });
    writeFileSync(file, JSON.stringify(inspection));
    expect((await experimentReport(whole.folder)).record.inspection).toMatchObject({ state: 'open', filled: 8, of: 8 });
    writeFileSync(file, JSON.stringify({ ...inspection, inspectedBy: 'A. Reader', kindOfInspector: 'person' }));
    const { record, contentSha256 } = await experimentReport(whole.folder);
    expect(record.inspection).toMatchObject({ state: 'done', by: 'A. Reader (person)' });
    expect(contentSha256).toBe(wholeContent);
    writeFileSync(file, blank);
  });
});

/** Two by default, 20 where CI is set; SHADERL_PROTOCOL_SEEDS=200 by hand. */
const wantedSeeds = process.env['SHADERL_PROTOCOL_SEEDS'] ?? (process.env['CI'] ? 20 : 2);
const seeds = Array.from({ length: Number(wantedSeeds) }, (_, i) => i + 1);

/** A process that dies at its n-th write: this effect and all after it never happen. */
function dyingAfter(boundaries: number) {
  let left = boundaries;
  return () => {
    left -= 1;
    if (left < 0) throw new Error('killed');
  };
}

describe('an experiment that is killed', () => {
  test.each(seeds)(
    'again and again at random writes ends with the content of an uninterrupted one (%i)',
    async (seed) => {
      const plan = await preparedPlan(base, inputs);
      let finished = false;
      let kills = 0;
      const killedIn = new Set<string>();
      for (let n = 0; !finished && n < 200; n++) {
        // The qualification is one piece of some 400 write boundaries: fewer never get past it.
        const boundaries = 100 + (streamWords(seed, 0, n)[0] % 500);
        try {
          finished = (await attempt(plan, again, { beforeWrite: dyingAfter(boundaries) })).status === 'finished';
        } catch (error) {
          expect(String((error as { cause?: unknown }).cause ?? error)).toContain('killed');
          kills += 1;
          const { open, next } = experimentProgress(await entriesOf(plan));
          killedIn.add(open ?? next ?? 'none');
          // What a kill leaves is a sound state, wherever it fell.
          expect(await folderFindings(plan), `killed in ${open ?? next}`).toEqual([]);
        }
      }
      expect(finished).toBe(true);
      expect(kills).toBeGreaterThan(0);
      expect(killedIn.has('none')).toBe(false);
      expect(await contentOf(plan)).toBe(wholeContent);
    },
  );

  test('in each stage in turn goes on from there, and leaves what was unsealed in recovery/', async () => {
    const plan = await preparedPlan(base, inputs);
    for (const stage of STAGES) {
      const ports = await smallPorts(plan);
      const append = ports.journal.append;
      // Dies when the stage's work is done and its end is about to be written.
      const dying = {
        ...ports.journal,
        append: (event: Parameters<typeof append>[0]) =>
          event.kind === 'stage-end' && event.data.stage === stage
            ? Promise.reject(new Error('killed'))
            : append(event),
      };
      await expect(runExperiment(plan, { ...ports, journal: dying }, again)).rejects.toThrow('killed');
    }
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
    const { attempts } = experimentProgress(await entriesOf(plan));
    expect(attempts).toHaveLength(STAGES.length + 1);
    const recovered = readdirSync(join(plan.folder, 'recovery'));
    expect(recovered).toEqual(
      expect.arrayContaining(['qualification.1', 'merged.1', 'evidence-resume-qualification.json.1']),
    );
  });
});

describe('a stop that was asked for', () => {
  test('closes the attempt in training with everything sealed, and needs --resume to go on', async () => {
    const plan = await preparedPlan(base, inputs);
    expect(await attempt(plan, once, { change: stopInTraining })).toMatchObject({
      status: 'interrupted',
      next: 'training',
    });
    expect(existsSync(join(plan.folder, 'training/checkpoints/step-000001/seal.json'))).toBe(true);
    expect(await experimentStatus(plan.folder)).toMatchObject({
      state: 'interrupted',
      stage: 'training',
      training: { step: 1, steps: 4 },
    });
    expect(await refusal(attempt(plan, once))).toMatchObject({ name: 'PlanError', code: 'needs-resume' });
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    // A stop seals one checkpoint more; the content is the same.
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('ends an evaluation in mid-work, which is not recorded', async () => {
    const plan = await preparedPlan(base, inputs);
    let asked = false;
    const change = (ports: Awaited<ReturnType<typeof smallPorts>>) => ({
      stopRequested: () => asked,
      evaluate: async (...args: Parameters<typeof ports.evaluate>) => {
        if (args[0].suite !== 'final-agent') return ports.evaluate(...args);
        asked = true;
        throw new Error('the worker was stopped');
      },
    });
    expect(await attempt(plan, once, { change })).toMatchObject({ status: 'interrupted', next: 'final' });
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('after the qualification is no interruption', async () => {
    const plan = await preparedPlan(base, inputs);
    expect(await attempt(plan, { resume: false, qualificationOnly: true })).toMatchObject({
      status: 'qualified',
      next: 'training',
    });
    expect(await attempt(plan, once)).toMatchObject({ status: 'finished' });
  });
});

describe('the budget', () => {
  test('is charged over attempts, one that was never closed up to its last heartbeat, rounded up', async () => {
    const plan = await preparedPlan(base, inputs, {
      ...smallRecipe,
      budget: { wallSeconds: 100, heartbeatSeconds: 600 },
    });
    const ports = await smallPorts(plan);
    await ports.journal.append({ kind: 'experiment-start', data: { planSha256: plan.sha256 } });
    const start = (n: number, chargedSeconds: number) =>
      ports.journal.append({
        kind: 'attempt-start',
        data: { attempt: n, host: 'h', pid: 1, resume: n > 1, chargedSeconds, versions: {} },
      });
    await start(1, 0);
    await ports.journal.append({ kind: 'heartbeat', data: { attempt: 1, stage: null, seconds: 40.2 } });
    await start(2, 41);
    await start(3, 42);
    await ports.journal.append({
      kind: 'attempt-end',
      data: { attempt: 3, status: 'interrupted', reason: '', seconds: 50.5 },
    });
    expect(experimentProgress(ports.journal.entries)).toMatchObject({
      chargedSeconds: 93,
      attempts: [{ chargedSeconds: 41, status: 'never-closed' }, { chargedSeconds: 1 }, { chargedSeconds: 51 }],
    });
    // 93 s are charged; this attempt is asked at 8 s on its clock.
    const change = () => ({ seconds: () => 8 });
    expect(await attempt(plan, again, { change })).toMatchObject({ status: 'budget-spent', chargedSeconds: 101 });
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'PlanError', code: 'budget-spent' });
    expect(error.message).toContain('found 101 s charged to 4 attempts; the plan allows 100 s in all');
  });
});
