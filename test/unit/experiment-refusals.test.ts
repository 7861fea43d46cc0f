// What an experiment refuses, and that it goes on afterwards as if nothing had happened.
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildEvaluation } from '../../src/evaluation/results.ts';
import { requirePlanFamily } from '../../src/experiment/device-facts.ts';
import { type DriverOptions, type ExperimentOutcome, runExperiment } from '../../src/experiment/driver.ts';
import { planDifferences } from '../../src/experiment/freeze-node.ts';
import type { LoadedPlan } from '../../src/experiment/plan.ts';
import { openJournal, tornLineNote } from '../../src/journal.ts';
import { sha256Hex } from '../../src/lib/sha256-node.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
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

/** Expects the parts of a message in their order: the file, what was found, what was wanted, what to do. */
function expectParts(
  message: string,
  ...parts: readonly [file: string, found: string, wanted: string, remedy: string]
) {
  let at = 0;
  for (const part of parts) {
    const place = message.indexOf(part, at);
    expect(place, `"${part}" after character ${at} of: ${message}`).toBeGreaterThanOrEqual(0);
    at = place + part.length;
  }
}
const sha256Of = (file: string) => sha256Hex(readFileSync(file));

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
      planDifferences: async () => [
        { file: '/x/train.jsonl', frozen: 'a'.repeat(64), found: 'b'.repeat(64), place: null },
      ],
    });
    const error = await refusal(attempt(plan, once, { change }));
    expect(error).toMatchObject({ name: 'PlanError', code: 'plan-changed' });
    expectParts(
      error.message,
      '/x/train.jsonl',
      `found SHA-256 ${'b'.repeat(64)}`,
      `the plan froze SHA-256 ${'a'.repeat(64)}`,
      'Restore the file, or prepare a new plan',
    );
    expect(existsSync(join(plan.folder, 'journal.jsonl'))).toBe(false);
  });

  test('one changed byte of an input, found by hashing the inputs again', async () => {
    const own = mkdtempSync(join(base, 'inputs-'));
    const given = writeInputs(own);
    const plan = await preparedPlan(own, given);
    const frozen = sha256Of(given.mgsm);
    const good = readFileSync(given.mgsm);
    const changed = Buffer.from(good);
    changed[changed.indexOf(9) - 1]! ^= 1;
    writeFileSync(given.mgsm, changed);
    // The program may be worked on while this runs: its own files are not looked at here.
    const change = () => ({
      planDifferences: async () =>
        (await planDifferences(plan.plan, plan.folder)).filter(({ file }) => file.startsWith(own)),
    });
    const error = await refusal(attempt(plan, once, { change }));
    expect(error).toMatchObject({ name: 'PlanError', code: 'plan-changed' });
    expectParts(
      error.message,
      `${plan.folder}/plan.json against ${given.mgsm}`,
      `found SHA-256 ${sha256Of(given.mgsm)}`,
      `the plan froze SHA-256 ${frozen}`,
      'Restore the file',
    );
    writeFileSync(given.mgsm, good);
    expect(await attempt(plan, once, { change })).toMatchObject({ status: 'finished' });
  });

  test('another plan than the journal was begun with', async () => {
    const plan = await interrupted();
    const other = await preparedPlan(base, inputs, { ...smallRecipe, name: 'other' });
    const error = await refusal(runExperiment(other, await smallPorts(plan), again));
    expect(error).toMatchObject({ code: 'other-plan' });
    expectParts(
      error.message,
      `${plan.folder}/plan.json`,
      `found SHA-256 ${other.sha256}`,
      `its journal was begun with ${plan.sha256}`,
      'Restore the plan, or prepare a new one',
    );
  });

  test('another device', async () => {
    const plan = await interrupted();
    const change = () => ({
      device: async () => ({ facts: { device: 'another', family: 'portable' }, qualification: '' }),
    });
    const error = await refusal(attempt(plan, again, { change }));
    expect(error).toMatchObject({ name: 'DeviceError', code: 'other-device' });
    expectParts(
      error.message,
      plan.folder,
      'found device another',
      'this experiment was qualified with none',
      'go on where it began, or prepare a new plan',
    );
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('another kernel family', async () => {
    const plan = await interrupted();
    const change = () => ({ device: async () => ({ facts: { device: 'none', family: 'matrix' }, qualification: '' }) });
    const error = await refusal(attempt(plan, again, { change }));
    expect(error).toMatchObject({ name: 'DeviceError', code: 'other-device' });
    expectParts(
      error.message,
      plan.folder,
      'found family matrix',
      'this experiment was qualified with portable',
      'go on where it began, or prepare a new plan',
    );
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('a kernel family that the adapter does not have, before anything is journaled as passed', async () => {
    const plan = await preparedPlan(base, inputs);
    const device = (available: boolean) => async () => {
      requirePlanFamily('matrix', { available, reason: 'the adapter has no feature x' }, 'llvmpipe 1.0', plan.folder);
      return { facts: { device: 'none', family: 'portable' }, qualification: '{}' };
    };
    const error = await refusal(attempt(plan, once, { change: () => ({ device: device(false) }) }));
    expect(error).toMatchObject({ name: 'DeviceError', code: 'family-unavailable' });
    expectParts(
      error.message,
      `${plan.folder}/plan.json`,
      'found the adapter llvmpipe 1.0, and the adapter has no feature x',
      'the plan froze the kernel family matrix',
      'Run it on a device that has the family, or prepare a plan',
    );
    expect(await attempt(plan, again, { change: () => ({ device: device(true) }) })).toMatchObject({
      status: 'finished',
    });
  });

  test('completed evidence that was changed afterwards', async () => {
    const plan = await interrupted();
    const file = join(plan.folder, 'evidence/resume-qualification.json');
    const good = readFileSync(file);
    writeFileSync(file, `${good} `);
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'evidence-changed' });
    const found = sha256Of(file);
    writeFileSync(file, good);
    expectParts(
      error.message,
      file,
      `found SHA-256 ${found}`,
      `wanted SHA-256 ${sha256Of(file)}, as line`,
      'Restore the file; completed evidence is never made again.',
    );
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
    expectParts(error.message, file, 'found content', 'wanted', 'restore it, or start a new run');
    writeFileSync(file, good);
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
  });

  test('a torn journal line, which is no refusal: it is set aside and the run goes on', async () => {
    const plan = await interrupted();
    const file = join(plan.folder, 'journal.jsonl');
    const whole = readFileSync(file, 'utf8');
    writeFileSync(file, `${whole}{"attempt":2,"da`);
    const copy = mkdtempSync(join(base, 'torn-'));
    cpSync(file, join(copy, 'journal.jsonl'));
    const { torn } = await openJournal(createNodeStorage(copy), 'journal.jsonl', () => '2026-01-01T00:00:00.000Z');
    expectParts(
      tornLineNote(torn!, copy),
      join(copy, 'journal.jsonl'),
      `16 bytes after line ${whole.split('\n').length - 1}`,
      'wanted whole lines',
      `moved to ${join(copy, 'recovery/journal.jsonl.1')}`,
    );
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
    expectParts(
      error.message,
      join(plan.folder, 'training/checkpoints/step-000004'),
      `found a checkpoint of run ${other.plan.trainingSha256.slice(0, 16)}`,
      `wanted run ${plan.plan.trainingSha256.slice(0, 16)}`,
      "Move it out of this run's folder",
    );
    rmSync(join(plan.folder, 'training/checkpoints'), { recursive: true });
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('a checkpoint of the same plan with another journal', async () => {
    const plan = await interrupted();
    cpSync(join(whole.folder, 'training/checkpoints'), join(plan.folder, 'training/checkpoints'), { recursive: true });
    const error = await refusal(attempt(plan, again));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'journal-prefix' });
    expectParts(
      error.message,
      join(plan.folder, 'training/checkpoints/step-000004'),
      'found 0 lines',
      'the checkpoint sealed',
      'restore it; nothing was trained on',
    );
    rmSync(join(plan.folder, 'training/checkpoints'), { recursive: true });
    expect(await attempt(plan, again)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
  });

  test('a full disk, after which the run goes on', async () => {
    const plan = await preparedPlan(base, inputs);
    const full = (boundary: string) => {
      if (boundary.startsWith('write:evaluations/') && boundary.endsWith('fsync'))
        throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    };
    const error = await refusal(attempt(plan, once, { beforeWrite: full }));
    expect(error).toMatchObject({ name: 'CheckpointError', code: 'disk-full' });
    expectParts(
      error.message,
      join(plan.folder, 'evaluations/dev-agent-baseline-seed-42'),
      'no space left',
      'wanted room for the whole file',
      'Free space on that disk, then resume; nothing was lost.',
    );
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
    writeFileSync(step(plan, 2, 'seal.json'), good);
    expectParts(
      error.message,
      step(plan, 2, 'seal.json'),
      'found no such file',
      `wanted SHA-256 ${sha256Of(step(plan, 2, 'seal.json'))}, as line`,
      'Restore the file',
    );
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
    expectParts(error.message, file, 'found', 'wanted', '. ');
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
