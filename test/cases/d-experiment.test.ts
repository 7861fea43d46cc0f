// Case D at the level of an experiment: the resume qualification sees what a broken resume does, and says where.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkpointFolder, sealCheckpoint, type VerifiedCheckpoint, verifyCheckpoint } from '../../src/checkpoint.ts';
import { type Branch, compareBranches, jsonDifference, seesFlippedBit } from '../../src/experiment/compare-branches.ts';
import { runExperiment } from '../../src/experiment/driver.ts';
import type { ExperimentPorts } from '../../src/experiment/ports.ts';
import { readBranch } from '../../src/experiment/qualify-resume.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { type Inputs, preparedPlan, smallPorts, writeInputs } from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-d-experiment-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: Inputs;
beforeAll(() => {
  inputs = writeInputs(base);
});

/** Seals a checkpoint again with a change, as a faulty restore would leave the run's state. */
async function reseal(
  folder: string,
  change: (checkpoint: VerifiedCheckpoint) => Partial<VerifiedCheckpoint>,
): Promise<void> {
  const storage = createNodeStorage(folder);
  const checkpoint = await verifyCheckpoint(storage, checkpointFolder(2));
  await storage.remove(checkpoint.folder);
  await sealCheckpoint(storage, checkpoint.folder, {
    files: checkpoint.files,
    state: checkpoint.state,
    ...change(checkpoint),
  });
}

/** Runs the qualification; `fault` is done to the stopped branch before it goes on. */
async function qualify(fault: (folder: string) => Promise<void>) {
  const plan = await preparedPlan(base, inputs);
  const change = (ports: ExperimentPorts): Partial<ExperimentPorts> => ({
    async branch(run, path, options) {
      if (options.resume) await fault(join(plan.folder, path));
      await ports.branch(run, path, options);
    },
  });
  const outcome = runExperiment(plan, await smallPorts(plan, { change }), { resume: false, qualificationOnly: true });
  return { plan, outcome };
}

describe('the resume qualification', () => {
  test('passes where stop and resume change nothing, and leaves its record', async () => {
    const { plan, outcome } = await qualify(async () => {});
    expect(await outcome).toMatchObject({ status: 'qualified', next: 'training' });
    const record = JSON.parse(readFileSync(join(plan.folder, 'evidence/resume-qualification.json'), 'utf8'));
    expect(record).toMatchObject({
      passed: true,
      planSha256: plan.sha256,
      family: 'portable',
      device: { device: 'none' },
      arm: 'local',
    });
    expect(record.compared.map(({ differences }: { differences: unknown[] }) => differences.length)).toEqual([0, 0]);
    expect(record.flippedBitSeen).toMatchObject({ file: 'adapter_model.safetensors' });
  }, 60_000);

  test('fails for the lowest bit of one weight, even where rounding takes it out of the weights again', async () => {
    const { outcome } = await qualify((folder) =>
      reseal(folder, ({ files }) => {
        const flipped = files['adapter_model.safetensors'].slice();
        flipped[flipped.length - 4]! ^= 1;
        return { files: { ...files, 'adapter_model.safetensors': flipped } };
      }),
    );
    await expect(outcome).rejects.toMatchObject({ name: 'AuditError', code: 'not-reproducible' });
  }, 60_000);

  test('fails for one flipped bit in the adapter, naming file, tensor, index and both values', async () => {
    const { outcome } = await qualify((folder) =>
      reseal(folder, ({ files }) => {
        const flipped = files['adapter_model.safetensors'].slice();
        flipped[flipped.length - 3]! ^= 0x80;
        return { files: { ...files, 'adapter_model.safetensors': flipped } };
      }),
    );
    const error = await outcome.catch((caught: unknown) => caught);
    expect(error).toMatchObject({ name: 'AuditError', code: 'not-reproducible' });
    const value = String.raw`\S+ \(0x[0-9a-f]{8}\)`;
    expect((error as Error).message).toMatch(
      new RegExp(
        String.raw`adapter_model\.safetensors, base_model\.\S+lora_B\.weight, index \d+: ` +
          `${value} in the uninterrupted run, ${value} in the resumed run`,
      ),
    );
  }, 60_000);

  test('fails for one skipped draw of the prompt order', async () => {
    const { plan, outcome } = await qualify((folder) =>
      reseal(folder, ({ state }) => ({
        state: { ...state, cursor: { ...state.cursor, index: state.cursor.index + 1 } },
      })),
    );
    await expect(outcome).rejects.toMatchObject({ code: 'not-reproducible' });
    const record = JSON.parse(readFileSync(join(plan.folder, 'evidence/resume-qualification.json'), 'utf8'));
    const files = record.compared[1].differences.map(({ file }: { file: string }) => file);
    expect(record.passed).toBe(false);
    expect(files).toEqual(
      expect.arrayContaining([
        'adapter_model.safetensors',
        'optimizer.safetensors',
        'state.json',
        'rollouts/step-000003.jsonl',
      ]),
    );
    // Steps before the stop are equal: the fault is located.
    expect(files).not.toContain('rollouts/step-000002.jsonl');
  }, 60_000);

  test('is made again in a later attempt, what failed set aside', async () => {
    const { plan, outcome } = await qualify((folder) =>
      reseal(folder, ({ state }) => ({ state: { ...state, cursor: { epoch: 0, index: 0 } } })),
    );
    await expect(outcome).rejects.toMatchObject({ code: 'not-reproducible' });
    const ports = await smallPorts(plan);
    expect(await runExperiment(plan, ports, { resume: true, qualificationOnly: true })).toMatchObject({
      status: 'qualified',
    });
    expect(await createNodeStorage(plan.folder).exists('recovery/qualification.1')).toBe(true);
  }, 60_000);
});

describe('the comparison of two branches', () => {
  let branch: Branch;
  beforeAll(async () => {
    const { plan, outcome } = await qualify(async () => {});
    await outcome;
    branch = await readBranch(createNodeStorage(join(plan.folder, 'qualification/attempt-1/uninterrupted')), 'b', 4);
  }, 60_000);

  test('finds nothing in a branch and itself, and one flipped bit in a copy', async () => {
    expect(await compareBranches(branch, branch)).toEqual([]);
    expect(await seesFlippedBit(branch)).not.toBeNull();
  });

  test.each([0, 9, 100])('finds a changed byte of the moments wherever it is (%i from the end)', async (fromEnd) => {
    const moved = branch.files['optimizer.safetensors'].slice();
    moved[moved.length - 1 - fromEnd]! ^= 0x80;
    const other = { ...branch, files: { ...branch.files, 'optimizer.safetensors': moved } };
    const [difference, ...rest] = await compareBranches(branch, other);
    expect(rest).toEqual([]);
    expect(difference).toMatchObject({ file: 'optimizer.safetensors', tensor: expect.stringMatching(/^v\./) });
  });

  test('finds a changed schedule, RNG counter, token and missing rollout file', async () => {
    const state = (change: object) => compareBranches(branch, { ...branch, state: { ...branch.state, ...change } });
    expect(await state({ schedule: { ...branch.state.schedule, position: 3 } })).toMatchObject([
      { tensor: 'schedule.position', left: '4', right: '3' },
    ]);
    expect(await state({ rng: { ...branch.state.rng, counters: { step: 6 } } })).toMatchObject([
      { tensor: 'rng.counters.step' },
    ]);
    expect(jsonDifference('f', { ids: [1, 2] }, { ids: [1, 3] })).toEqual({
      file: 'f',
      tensor: 'ids[1]',
      index: 1,
      left: '2',
      right: '3',
    });
    const rollouts = new Map([...branch.rollouts].slice(1));
    expect(await compareBranches(branch, { ...branch, rollouts })).toMatchObject([
      { file: 'rollouts/step-000001.jsonl', right: 'nothing' },
    ]);
  });
});
