// What an experiment refuses, and that it goes on afterwards as if nothing had happened.
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildEvaluation } from '../../src/evaluation/results.ts';
import { type DriverOptions, type ExperimentOutcome, runExperiment } from '../../src/experiment/driver.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import { experimentReport } from '../../workers/experiment/report-node.ts';
import {
  type Inputs,
  preparedPlan,
  type SmallPortsOptions,
  smallPorts,
  smallRecipe,
  writeInputs,
} from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-driver-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
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

describe('refused, with the file and both values named, and nothing lost:', () => {
  async function interrupted(): Promise<Prepared> {
    const plan = await preparedPlan(base, inputs);
    await attempt(plan, { resume: false, qualificationOnly: true });
    return plan;
  }

  test('a changed file of the plan', async () => {
    const plan = await preparedPlan(base, inputs);
    const change = () => ({
      planDifferences: async () => [{ file: '/x/train.jsonl', frozen: 'a'.repeat(64), found: 'b'.repeat(64) }],
    });
    const error = await refusal(attempt(plan, once, { change }));
    expect(error).toMatchObject({ name: 'PlanError', code: 'plan-changed' });
    expect(error.message).toContain(
      `/x/train.jsonl: found SHA-256 ${'b'.repeat(64)}; the plan froze SHA-256 ${'a'.repeat(64)}`,
    );
    expect(existsSync(join(plan.folder, 'journal.jsonl'))).toBe(false);
  });

  test('another plan than the journal was begun with', async () => {
    const plan = await interrupted();
    const other = await preparedPlan(base, inputs, { ...smallRecipe, name: 'other' });
    const error = await refusal(runExperiment(other, await smallPorts(plan), again));
    expect(error).toMatchObject({ code: 'other-plan' });
    expect(error.message).toContain(`found SHA-256 ${other.sha256}; its journal was begun with ${plan.sha256}`);
  });

  test('another device', async () => {
    const plan = await interrupted();
    const change = () => ({
      device: async () => ({ facts: { device: 'another', family: 'portable' }, qualification: '' }),
    });
    const error = await refusal(attempt(plan, again, { change }));
    expect(error).toMatchObject({ name: 'DeviceError', code: 'other-device' });
    expect(error.message).toContain('found device another; this experiment was qualified with none');
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('another kernel family', async () => {
    const plan = await interrupted();
    const change = () => ({ device: async () => ({ facts: { device: 'none', family: 'matrix' }, qualification: '' }) });
    expect(await refusal(attempt(plan, again, { change }))).toMatchObject({ code: 'other-device' });
  });

  test('completed evidence that was changed afterwards', async () => {
    const plan = await interrupted();
    const file = join(plan.folder, 'evidence/resume-qualification.json');
    const good = readFileSync(file);
    writeFileSync(file, `${good} `);
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'evidence-changed' });
    expect(error.message).toMatch(
      /resume-qualification\.json: found SHA-256 [0-9a-f]{64}; wanted SHA-256 [0-9a-f]{64}, as line \d+/,
    );
    writeFileSync(file, good);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
  });

  test('a forged journal entry', async () => {
    const plan = await interrupted();
    const file = join(plan.folder, 'journal.jsonl');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, good.replace('"passed":true', '"passed":false'));
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'journal-hash' });
    expect(error.message).toMatch(
      /journal\.jsonl line \d+: found content with sha256 [0-9a-f]{64}; wanted [0-9a-f]{64}/,
    );
    writeFileSync(file, good);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
  });

  test('a torn journal line, which is no refusal: it is set aside and the run goes on', async () => {
    const plan = await interrupted();
    const file = join(plan.folder, 'journal.jsonl');
    writeFileSync(file, `${readFileSync(file, 'utf8')}{"attempt":2,"da`);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(readFileSync(join(plan.folder, 'recovery/journal.jsonl.1'), 'utf8')).toBe('{"attempt":2,"da');
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('a checkpoint of another run', async () => {
    const [plan, other] = [
      await interrupted(),
      await preparedPlan(base, inputs, { ...smallRecipe, training: { ...smallRecipe.training, seed: 5 } }),
    ];
    await attempt(other, once);
    cpSync(join(other.folder, 'training/checkpoints'), join(plan.folder, 'training/checkpoints'), { recursive: true });
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'other-run' });
    expect(error.message).toContain(`found a checkpoint of run ${other.plan.trainingSha256.slice(0, 16)}`);
    expect(error.message).toContain(`wanted run ${plan.plan.trainingSha256.slice(0, 16)}`);
    rmSync(join(plan.folder, 'training/checkpoints'), { recursive: true });
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('a checkpoint of the same plan with another journal', async () => {
    const plan = await interrupted();
    cpSync(join(whole.folder, 'training/checkpoints'), join(plan.folder, 'training/checkpoints'), { recursive: true });
    expect(await refusal(attempt(plan, again))).toMatchObject({ code: 'journal-prefix' });
  });

  test('a full disk, after which the run goes on', async () => {
    const plan = await preparedPlan(base, inputs);
    const full = (boundary: string) => {
      if (boundary.startsWith('write:evaluations/') && boundary.endsWith('fsync'))
        throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    };
    const error = await refusal(attempt(plan, once, { beforeWrite: full }));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'disk-full' });
    expect(error.message).toMatch(/evaluations\/dev-agent-baseline-seed-42.*no space left.*Free space/);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('samples that a service lost: never scored, evaluated again after a resume', async () => {
    const plan = await preparedPlan(base, inputs);
    const change = (ports: Awaited<ReturnType<typeof smallPorts>>) => ({
      evaluate: async (...args: Parameters<typeof ports.evaluate>) => {
        const answer = await ports.evaluate(...args);
        const { schema: _s, totals: _t, ...rest } = answer.evaluation;
        const items = rest.items.map((item, i) => (i === 0 ? { ...item, outcome: 'infrastructure' as const } : item));
        return { ...answer, evaluation: buildEvaluation({ ...rest, items }) };
      },
    });
    const error = await refusal(attempt(plan, once, { change }));
    expect(error).toMatchObject({ name: 'EnvError', code: 'lost-samples' });
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('a merged model whose bytes are not the audited ones', async () => {
    const plan = await preparedPlan(base, inputs, {
      ...smallRecipe,
      final: { ...smallRecipe.final, policy: 'merged' },
    });
    const seen: string[] = [];
    const change = (ports: Awaited<ReturnType<typeof smallPorts>>) => ({
      evaluate: async (...args: Parameters<typeof ports.evaluate>) => {
        seen.push(args[1].kind);
        return ports.evaluate(...args);
      },
      mergedTree: async () => 'f'.repeat(64),
    });
    const error = await refusal(attempt(plan, once, { change }));
    expect(error).toMatchObject({ name: 'EvaluationError', code: 'other-merge' });
    expect(seen).not.toContain('merged');
    const finish = (ports: Awaited<ReturnType<typeof smallPorts>>) => ({
      ...change(ports),
      mergedTree: ports.mergedTree,
    });
    expect(await attempt(plan, again, { change: finish })).toMatchObject({ status: 'finished' });
    expect(seen).toContain('merged');
  });

  /** An experiment that was stopped when its training had passed. */
  async function trained(): Promise<Prepared> {
    const plan = await preparedPlan(base, inputs);
    const change = ({ journal }: Awaited<ReturnType<typeof smallPorts>>) => ({
      stopRequested: () => journal.entries.some(({ kind, data }) => kind === 'stage-end' && data.stage === 'training'),
    });
    expect(await attempt(plan, once, { change })).toMatchObject({ status: 'interrupted', next: 'dev' });
    return plan;
  }
  const step = (plan: Prepared, n: number, file: string) =>
    join(plan.folder, `training/checkpoints/step-00000${n}`, file);

  test('a missing seal', async () => {
    const plan = await trained();
    const good = readFileSync(step(plan, 2, 'seal.json'));
    rmSync(step(plan, 2, 'seal.json'));
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'evidence-changed' });
    expect(error.message).toMatch(
      /step-000002\/seal\.json: found no such file; wanted SHA-256 [0-9a-f]{64}, as line \d+/,
    );
    writeFileSync(step(plan, 2, 'seal.json'), good);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test.each([
    ['the adapter of another step', (plan: Prepared) => readFileSync(step(plan, 4, 'adapter_model.safetensors'))],
    ['an adapter of no bytes', () => Buffer.alloc(0)],
  ])('a sealed step with %s', async (_name, bytes) => {
    const plan = await trained();
    const file = step(plan, 2, 'adapter_model.safetensors');
    const good = readFileSync(file);
    writeFileSync(file, bytes(plan));
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: expect.stringMatching(/^(digest|size)-mismatch$/) });
    expect(error.message).toMatch(/step-000002\/adapter_model\.safetensors: found .*; wanted .* as sealed/);
    writeFileSync(file, good);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('nothing because of a pointer of no bytes, which no program reads', async () => {
    const plan = await trained();
    writeFileSync(join(plan.folder, 'training/checkpoints/latest'), '');
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });
});
