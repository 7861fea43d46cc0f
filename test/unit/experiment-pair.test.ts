// The controller's decisions: which plans are a pair, and when the first arm has released the GPU.
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runExperiment } from '../../src/experiment/driver.ts';
import { processStart } from '../../src/experiment/lock-node.ts';
import { readFirstArm } from '../../src/experiment/matched-node.ts';
import { firstArmState, loadPlanFile, requirePair } from '../../src/experiment/pair-node.ts';
import { preparePlan } from '../../src/experiment/prepare-node.ts';
import { type Inputs, preparedPlan, smallPorts, smallRecipe, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-pair-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: Inputs;
let first: Awaited<ReturnType<typeof preparedPlan>>;
let second: string;
const planIn = (folder: string) => join(folder, 'plan.json');

beforeAll(async () => {
  inputs = writeInputs(base);
  first = await preparedPlan(base, inputs);
  second = join(base, 'second');
  const arm = await readFirstArm(first.folder);
  const { recipe } = arm.plan;
  await preparePlan({
    ...inputs,
    env: 'local',
    output: second,
    recipe,
    shaders: {},
    first: { arm, baseline: 'reuse' },
  });
}, 60_000);

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => expect.unreachable('it was not refused'),
    (error: { code: string; message: string }) => error,
  );

describe('two plans', () => {
  test('are a pair if the second was prepared from the first', async () => {
    expect(await requirePair(planIn(first.folder), planIn(second))).toMatchObject({
      first: { sha256: first.sha256 },
      second: { plan: { matched: { planSha256: first.sha256 } } },
    });
  });

  test('are none if the second is matched to nothing, or to another plan', async () => {
    const alone = await refusal(requirePair(planIn(second), planIn(first.folder)));
    expect(alone).toMatchObject({
      code: 'other-plan',
      message: expect.stringContaining('found a plan matched to none'),
    });
    const other = await preparedPlan(base, inputs, { ...smallRecipe, name: 'other' });
    const wrong = await refusal(requirePair(planIn(other.folder), planIn(second)));
    expect(wrong.message).toContain(`found a plan matched to ${first.sha256}; wanted ${other.sha256}`);
  });

  test('are none if the first arm lies elsewhere', async () => {
    const moved = mkdtempSync(join(base, 'moved-'));
    cpSync(first.folder, moved, { recursive: true });
    const error = await refusal(requirePair(planIn(moved), planIn(second)));
    expect(error).toMatchObject({ code: 'relocated-arm' });
    expect(error.message).toContain(`found the first arm in ${moved}; the second plan froze ${first.folder}`);
  });
});

describe('the first arm', () => {
  const copy = () => {
    const folder = mkdtempSync(join(base, 'arm-'));
    cpSync(first.folder, folder, { recursive: true });
    return { ...first, folder };
  };
  const state = async (folder: string) => firstArmState(await loadPlanFile(planIn(folder)), folder);
  const lock = (folder: string, holder: object) => {
    mkdirSync(join(folder, 'lock'));
    const own = { schema: 'shaderl.lock/1', host: hostname(), pid: process.pid, started: 'x', released: false };
    writeFileSync(join(folder, 'lock/000001.json'), JSON.stringify({ ...own, ...holder }));
  };

  test('has not released the GPU before it was begun, nor when it was stopped or failed', async () => {
    const arm = copy();
    expect(await state(arm.folder)).toMatchObject({ released: false, state: 'it was not begun', terminal: null });
    const options = { resume: false, qualificationOnly: false };
    const stopped = () => ({ stopRequested: () => true });
    await runExperiment(arm, await smallPorts(arm, { change: stopped }), options);
    expect(await state(arm.folder)).toMatchObject({
      released: false,
      state: 'its attempt 1 ended as interrupted: resume it',
    });
    const failing = () => ({ train: () => Promise.reject(new Error('broken')) });
    const again = { ...options, resume: true };
    await expect(runExperiment(arm, await smallPorts(arm, { change: failing }), again)).rejects.toThrow('broken');
    expect(await state(arm.folder)).toMatchObject({ released: false, state: expect.stringContaining('as failed') });
  });

  test('has released it with its terminal entry, but not while somebody holds its lock', async () => {
    const arm = copy();
    await runExperiment(arm, await smallPorts(arm), { resume: false, qualificationOnly: false });
    const { journal } = await smallPorts(arm);
    const end = journal.entries.find(({ kind }) => kind === 'attempt-end')!;
    const terminal = { line: end.index + 1, sha256: end.sha256 };
    expect(await state(arm.folder)).toMatchObject({ released: true, state: 'finished', terminal });
    lock(arm.folder, { started: processStart(process.pid) });
    expect(await state(arm.folder)).toMatchObject({
      released: false,
      state: `pid ${process.pid} on ${hostname()} holds its lock`,
    });
    rmSync(join(arm.folder, 'lock'), { recursive: true });
    // The process that held it is gone: its terminal entry stands.
    lock(arm.folder, { pid: 1, started: 'before the last boot' });
    expect(await state(arm.folder)).toMatchObject({ released: true });
  });

  test('has released it when its budget is spent, after which nothing of it is run', async () => {
    const arm = await preparedPlan(base, inputs, { ...smallRecipe, budget: { wallSeconds: 5, heartbeatSeconds: 600 } });
    const change = () => ({ seconds: () => 9 });
    const options = { resume: false, qualificationOnly: false };
    expect(await runExperiment(arm, await smallPorts(arm, { change }), options)).toMatchObject({
      status: 'budget-spent',
    });
    expect(await state(arm.folder)).toMatchObject({ released: true, state: 'budget-spent' });
  });

  test('is refused if its journal belongs to another plan', async () => {
    const arm = copy();
    const { journal } = await smallPorts(arm);
    await journal.append({ kind: 'experiment-start', data: { planSha256: 'a'.repeat(64) } });
    expect(await refusal(state(arm.folder))).toMatchObject({ code: 'other-plan' });
  });
});
