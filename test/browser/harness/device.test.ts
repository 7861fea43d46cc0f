// The in-page device on SwiftShader: qualification, chat, training that repeats bit for bit, replay; and no WebGPU.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseQualification } from '../../../src/qualification.ts';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { writeFixtureRun } from '../../support/inspect-run.ts';
import {
  axeFindings,
  launch,
  type OpenedPage,
  openPage,
  removeFolder,
  scratchFolder,
  seenText,
  serveRuns,
} from './open-page.ts';

const folder = scratchFolder();
const slow = { timeout: 200_000 };
let browser: Browser;
let server: InspectServer;
let opened: OpenedPage;
const at = (hash: string) => `${server.url}${hash}`;

beforeAll(async () => {
  const run = join(folder, 'run');
  await writeFixtureRun(run, { steps: 1, groupSize: 2 });
  browser = await launch();
  server = await serveRuns([run]);
  opened = await openPage(browser);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

describe('the qualification page', () => {
  it('passes every kernel and gives the file that Node reads', async () => {
    const { page } = opened;
    await page.goto(at('#/qualify'));
    await page.getByRole('button', { name: 'Qualify this adapter' }).click();
    const result = page.locator('[data-result=qualify]');
    await result.waitFor(slow);
    expect(await result.getAttribute('data-passed')).toBe('true');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: /Download/ }).click(),
    ]);
    const text = readFileSync(await download.path(), 'utf8');
    const qualification = parseQualification(text, 'the download');
    expect(qualification.passed).toBe(true);
    expect(qualification.device.software).toBe(true);
    expect(qualification.kernels.length).toBeGreaterThan(15);
    // A row a kernel, with the ratio that stands in the file.
    const rows = page.getByRole('region', { name: 'Kernels' }).locator('tbody tr');
    const names = await rows.locator('th').allTextContents();
    expect(names).toEqual(qualification.kernels.map(({ name }) => name));
    for (const text of await rows.allInnerTexts())
      expect(text).toMatch(/(exact|\d\.\d+(e-\d+)?)\s+yes\s+yes\s+✓ passed/);
    expect(await axeFindings(page)).toEqual([]);
  });
});

describe('the in-page device', () => {
  it('loads the embedded policy and answers with tool calls', async () => {
    const { page } = opened;
    await page.goto(at('#/device?tab=chat'));
    await page.getByRole('button', { name: 'Load the embedded policy' }).click();
    await page.getByText('Ready.').waitFor(slow);
    await page.getByRole('button', { name: 'Ask' }).click();
    const result = page.locator('[data-result=chat]');
    await result.waitFor(slow);
    expect(await result.textContent()).toMatch(/\d+ tokens, [1-9] calls?, .*strict [✓✗], reward/);
    expect(await page.locator('.tok.src-sampled').count()).toBeGreaterThan(20);
    expect(await axeFindings(page)).toEqual([]);
  });

  it('trains two steps with finite metrics, twice with the same bits', async () => {
    const { page } = opened;
    const adapters: (string | null)[] = [];
    for (let time = 0; time < 2; time++) {
      await page.goto(at('#/device?tab=train'));
      await page.getByLabel('Group size').fill('2');
      await page.getByLabel('Most tokens').fill('96');
      await page.getByRole('button', { name: 'Train', exact: true }).click();
      const result = page.locator('[data-result=train]');
      // The curves are there before the training is over.
      const curve = (steps: number) => page.getByRole('img', { name: new RegExp(`over ${steps} steps`) }).first();
      await curve(1).waitFor(slow);
      expect(await result.count()).toBe(0);
      await result.waitFor(slow);
      await curve(2).waitFor();
      const metrics = JSON.parse((await result.getAttribute('data-metrics'))!) as Record<string, number>[];
      expect(metrics).toHaveLength(2);
      for (const step of metrics) {
        expect(step['loss']).toBeTypeOf('number');
        for (const value of Object.values(step)) expect(Number.isFinite(value)).toBe(true);
      }
      expect(metrics[0]!['policy_ratio/max']).toBe(1);
      adapters.push(await result.getAttribute('data-adapter'));
      await page.goto(at('#/run'));
    }
    expect(adapters[0]).toMatch(/^[0-9a-f]{64}$/);
    expect(adapters[1]).toBe(adapters[0]);
  });

  it('replays a rollout that it made with equal bits, and finds invented log-probs unequal', async () => {
    const { page } = opened;
    await page.goto(at('#/device?tab=replay&run=1&file=step-000001.jsonl&line=1'));
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    const result = page.locator('[data-result=replay]');
    await result.waitFor(slow);
    expect(await result.getAttribute('data-unequal')).toBe('0');
    expect(await result.textContent()).toContain('Weights: the untrained adapter');

    await page.goto(at('#/device?tab=replay&file=rollouts%2Fstep-000001.jsonl&line=1'));
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await page
      .getByRole('alert')
      .getByText(/none with that hash; wanted the weights that sampled it/)
      .waitFor();
    await page.getByLabel(/use the base model/).check();
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await result.waitFor(slow);
    expect(Number(await result.getAttribute('data-unequal'))).toBeGreaterThan(10);
    await page.getByRole('link', { name: 'Open the rollout with these values' }).click();
    await page.getByLabel('Colour by').selectOption('difference');
    expect(await page.locator('.turns .tok.scaled').count()).toBeGreaterThan(10);
    expect(opened.errors).toEqual([]);
  });
});

describe('a browser without WebGPU', () => {
  it('says so with the flag to use, and shows runs all the same', async () => {
    const plain = await launch(false);
    const { page } = await openPage(plain);
    // Chromium has the interface on loopback in any case; a browser without it is one that lacks navigator.gpu.
    await page.addInitScript(() => Reflect.deleteProperty(Navigator.prototype, 'gpu'));
    for (const place of ['#/device', '#/qualify']) {
      await page.goto(at(place));
      await page.getByText('This browser offers no WebGPU').waitFor();
      expect(await seenText(page.locator('main'))).toContain('--enable-unsafe-webgpu');
    }
    await page.goto(at('#/run'));
    await page
      .getByRole('img', { name: /over 1 steps/ })
      .first()
      .waitFor();
    await page.goto(at('#/rollout?file=rollouts%2Fstep-000001.jsonl&line=1'));
    await page.locator('.tok').first().waitFor({ state: 'attached' });
    await plain.close();
  });
});
