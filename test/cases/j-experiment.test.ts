// Case J1 in a whole experiment: a half-written newest checkpoint, or a disk that is full in the middle of one, never
// costs the older one, is never resumed from, and changes nothing of the result.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runExperiment } from '../../src/experiment/driver.ts';
import type { BeforeWrite } from '../../src/lib/storage.ts';
import { createNodeStorage } from '../../src/lib/storage-node.ts';
import { renderedReport } from '../../workers/experiment/report-node.ts';
import { folderFindings } from '../support/experiment-findings.ts';
import {
  type Inputs,
  preparedPlan,
  type SmallPortsOptions,
  smallPorts,
  smallTraining,
  writeInputs,
} from '../support/experiment-fixture.ts';

const base = mkdtempSync(join(tmpdir(), 'shaderl-j-experiment-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
let inputs: Inputs;
let wholeContent: string;

type Prepared = Awaited<ReturnType<typeof preparedPlan>>;
const attempt = async (plan: Prepared, options: SmallPortsOptions = {}) =>
  runExperiment(plan, await smallPorts(plan, options), { resume: true, qualificationOnly: false });
const contentOf = async ({ folder }: Prepared) => (await renderedReport(folder)).contentSha256;
const checkpoint = ({ folder }: Prepared, step: number, file = '') =>
  join(folder, 'training/checkpoints', `step-00000${step}`, file);

/** Stopped after three steps of training, of which the second and the third are sealed. */
async function stopped(): Promise<Prepared> {
  const plan = await preparedPlan(base, inputs);
  let asked = false;
  const change: SmallPortsOptions['change'] = (ports) => ({
    stopRequested: () => asked,
    train: async (run, { stop }) => {
      const status = await smallTraining(ports.storageAt('training'), run, { stop, stopAfter: 3 });
      asked = true;
      return status;
    },
  });
  expect(await attempt(plan, { change })).toMatchObject({ status: 'interrupted', next: 'training' });
  expect([2, 3].map((step) => existsSync(checkpoint(plan, step, 'seal.json')))).toEqual([true, true]);
  return plan;
}

beforeAll(async () => {
  inputs = writeInputs(base);
  const plan = await preparedPlan(base, inputs);
  await attempt(plan);
  wholeContent = await contentOf(plan);
}, 60_000);

describe('J1 in an experiment', () => {
  test.each([
    ['an adapter of no bytes', (plan: Prepared) => truncateSync(checkpoint(plan, 3, 'adapter_model.safetensors'), 0)],
    ['half of the moments', (plan: Prepared) => truncateSync(checkpoint(plan, 3, 'optimizer.safetensors'), 1000)],
    ['a state of no bytes', (plan: Prepared) => writeFileSync(checkpoint(plan, 3, 'state.json'), '')],
    ['no seal', (plan: Prepared) => rmSync(checkpoint(plan, 3, 'seal.json'))],
  ])('goes on from the older checkpoint where the newest one has %s, which is kept aside', async (_name, damage) => {
    const plan = await stopped();
    damage(plan);
    // The pointer for people still names it.
    expect(readFileSync(join(plan.folder, 'training/checkpoints/latest'), 'utf8')).toBe('step-000003\n');
    expect((await folderFindings(plan)).join('\n')).toContain('training/checkpoints/step-000003');
    expect(await attempt(plan)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
    expect(readdirSync(join(plan.folder, 'training/recovery')).join()).toContain('step-000003');
    expect(await folderFindings(plan)).toEqual([]);
  });

  test('keeps the older checkpoint when the disk is full at the next one, and goes on when it no longer is', async () => {
    const plan = await preparedPlan(base, inputs);
    const beforeWrite: BeforeWrite = (boundary) => {
      if (!boundary.startsWith('write:checkpoints/step-000004.tmp/optimizer.safetensors')) return;
      if (boundary.endsWith('fsync')) throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    };
    const full: SmallPortsOptions['change'] = () => ({
      train: (run, { stop }) =>
        smallTraining(createNodeStorage(join(plan.folder, 'training'), { beforeWrite }), run, { stop }),
    });
    await expect(attempt(plan, { change: full })).rejects.toMatchObject({
      name: 'CheckpointError',
      code: 'disk-full',
      message: expect.stringMatching(/step-000004.*no space left.*wanted room for the whole file.*then resume/),
    });
    expect(existsSync(checkpoint(plan, 2, 'seal.json'))).toBe(true);
    expect(existsSync(checkpoint(plan, 4))).toBe(false);
    expect(await folderFindings(plan)).toEqual([]);
    expect(await attempt(plan)).toMatchObject({ status: 'finished' });
    expect(await contentOf(plan)).toBe(wholeContent);
    expect(await folderFindings(plan)).toEqual([]);
  });
});
