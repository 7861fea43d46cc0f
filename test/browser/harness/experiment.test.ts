// The Run view of a preregistered experiment: stopped in DEV, gone on with while the page is open, finished.
// The folder is the protocol's own: plan, journal, seals, evaluations and selection are written by the driver.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runExperiment } from '../../../src/experiment/driver.ts';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { preparedPlan, smallPorts, writeInputs } from '../../support/experiment-fixture.ts';
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

const base = scratchFolder();
let plan: Awaited<ReturnType<typeof preparedPlan>>;
let browser: Browser;
let server: InspectServer;
let opened: OpenedPage;
const stage = (name: string) => opened.page.locator(`tr[data-stage=${name}]`);
const dev = (step: number) => opened.page.locator(`tr[data-dev="${step}"]`);

beforeAll(async () => {
  plan = await preparedPlan(base, writeInputs(base));
  const evaluated = join(plan.folder, 'evaluations/dev-agent-step-000002-seed-42.json');
  const ports = await smallPorts(plan, { change: () => ({ stopRequested: () => existsSync(evaluated) }) });
  const outcome = await runExperiment(plan, ports, { resume: false, qualificationOnly: false });
  expect(outcome.status).toBe('interrupted');
  browser = await launch();
  server = await serveRuns([plan.folder]);
  opened = await openPage(browser);
  await opened.page.goto(server.url);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(base);
});

describe('an experiment in the Run view', () => {
  it('shows what an interrupted one has: stages, DEV points so far, no selection', async () => {
    const { page } = opened;
    await stage('training').waitFor();
    expect(await stage('training').getAttribute('data-state')).toBe('passed');
    expect(await stage('dev').getAttribute('data-state')).toBe('stopped');
    expect(await stage('selection').getAttribute('data-state')).toBe('not begun');
    // A row that is put in anew while it is read has no layout, and so no gaps between its cells.
    await expect.poll(() => seenText(dev(2))).toMatch(/step 2\s+\d of 6/);
    await expect.poll(() => seenText(dev(4))).toMatch(/step 4\s+–\s+–\s+–/);
    const text = await seenText(page.locator('main'));
    expect(text).toContain(plan.sha256.slice(0, 12));
    expect(text).toContain('small, arm local');
    expect(text).toContain('No step has been selected yet.');
    expect(text).toMatch(/1 s of 1000 s, 999 s left/);
    expect(await seenText(page.locator('tr[data-attempt="1"]'))).toMatch(/interrupted/);
    expect(await page.getByRole('img', { name: /over 4 steps/ }).count()).toBeGreaterThan(0);
  });

  it('follows it to its selection without a reload, and says which attempt went on', async () => {
    const { page } = opened;
    await page.evaluate(() => Object.assign(window, { sameDocument: true }));
    const outcome = await runExperiment(plan, await smallPorts(plan), { resume: true, qualificationOnly: false });
    expect(outcome.status).toBe('finished');
    await page.locator('tr[data-stage=report][data-state=passed]').waitFor();
    expect(await page.evaluate(() => 'sameDocument' in window)).toBe(true);
    const selection = JSON.parse(readFileSync(join(plan.folder, 'selection.json'), 'utf8')) as {
      selected: number | null;
      points: { step: number; strict: number; mathCorrect: number; rank: number | null }[];
    };
    expect(selection.selected).not.toBeNull();
    for (const { step, strict, mathCorrect, rank } of selection.points) {
      const row = await seenText(dev(step));
      expect(row).toMatch(new RegExp(`step ${step}\\s+${strict} of 6 .*\\s+${mathCorrect} of 4 `));
      if (rank !== null) expect(row).toContain(`rank ${rank}`);
      expect(row.includes('◆ selected')).toBe(step === selection.selected);
    }
    expect(await seenText(page.locator('[data-result=selection]'))).toContain(`selected step ${selection.selected}`);
    expect(await seenText(page.locator('tr[data-attempt="2"]'))).toMatch(/2: resume[\s\S]*finished/);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect([colorScheme, await axeFindings(page)]).toEqual([colorScheme, []]);
    }
    expect(opened.errors).toEqual([]);
  });

  it('compares a DEV point with the baseline item by item', async () => {
    const { page } = opened;
    await dev(4).getByRole('link', { name: 'item by item' }).click();
    await page.getByRole('button', { name: 'all 6' }).waitFor();
  });

  it('names a selection file that somebody edited, and shows the rest', async () => {
    const file = join(plan.folder, 'selection.json');
    const good = readFileSync(file, 'utf8');
    writeFileSync(file, good.replace('"selected": ', '"selected": "step '));
    const { page, context } = await openPage(browser);
    await page.goto(server.url);
    await page.getByText(/reading selection.json: found .*; wanted the file that `shaderl run` writes/).waitFor();
    await page.locator('tr[data-stage=report][data-state=passed]').waitFor();
    await context.close();
    writeFileSync(file, good);
  });

  it('has the training files served and nothing else of its folder', async () => {
    const status = async (path: string) =>
      (await fetch(`${server.url}api/0/file?path=${encodeURIComponent(path)}&length=1`)).status;
    const checkpoint = 'training/checkpoints/step-000002';
    for (const path of ['training/journal.jsonl', 'training/rollouts/step-000001.jsonl', 'journal.jsonl']) {
      expect([path, await status(path)]).toEqual([path, 200]);
    }
    expect(await status(`${checkpoint}/adapter_model.safetensors`)).toBe(200);
    for (const path of [
      'plan.json',
      'plan.sha256',
      'data/final.jsonl',
      `${checkpoint}/optimizer.safetensors`,
      'training/../plan.json',
      'training/run-config.json',
    ]) {
      expect([path, await status(path)]).toEqual([path, 404]);
    }
  });
});
