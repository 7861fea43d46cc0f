// A training run that Node made on its own adapter, opened in the page and replayed on the browser's: log-probs of the
// same weights on two devices, and clip states of a later policy against what the run's journal counted.
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { InspectServer } from '../../../workers/inspect-node.ts';
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

const root = fileURLToPath(new URL('../../../', import.meta.url));
const folder = scratchFolder();
const run = join(folder, 'run');
const slow = { timeout: 120_000 };
const shaderl = (...args: string[]) =>
  promisify(execFile)(process.execPath, [join(root, 'cli/bin.mjs'), ...args, '--json'], { cwd: folder });
let browser: Browser;
let server: InspectServer;
let opened: OpenedPage;

/** The quickstart's recipe with few steps; every batch is used twice, so that the second step has ratios. */
const config = {
  ...(JSON.parse(readFileSync(join(root, 'recipes/quickstart.json'), 'utf8')) as object),
  model: join(root, 'fixtures/embedded-policy'),
  output: 'run',
  steps: 3,
  data: { count: 16 },
  generation: { temperature: 1, topP: 1, topK: 0, maxCompletionTokens: 128 },
  grpo: { groupSize: 4, groupsPerStep: 1, beta: 0, numIterations: 2 },
  optimizer: { learningRate: 0.01, schedule: 'constant' },
  lora: { rank: 4, alpha: 8 },
  checkpoints: { every: 1 },
};

beforeAll(async () => {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  await shaderl('qualify');
  await shaderl('train', '--config', 'config.json');
  browser = await launch();
  server = await serveRuns([run]);
  opened = await openPage(browser);
  await opened.page.goto(`${server.url}#/device`);
  await opened.page.getByRole('button', { name: 'Load the embedded policy' }).click();
  await opened.page.getByText('Ready.').waitFor(slow);
}, 300_000);
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

/** Replays a line and gives the attributes of the result. */
async function replay(page: Page, file: string, line: number, weights = '') {
  await page.goto(`${server.url}#/device?tab=replay&file=rollouts%2F${file}&line=${line}`);
  await page.getByLabel('Score with').selectOption(weights);
  await page.getByRole('button', { name: 'Replay', exact: true }).click();
  const result = page.locator('[data-result=replay]');
  await result.waitFor(slow);
  const { tokens, most, exact } = await result.evaluate((element) => ({ ...(element as HTMLElement).dataset }));
  return { tokens: Number(tokens), most: Number(most), exact, text: (await result.textContent())! };
}

describe('a run of Node in the page', () => {
  it.each([
    ['step-000001.jsonl', 'Weights: the untrained adapter.'],
    ['step-000003.jsonl', 'Weights: checkpoints/step-000002.'],
  ])('replays %s within 1e-5 nats of what the other device recorded', async (file, weights) => {
    const found = await replay(opened.page, file, 3);
    expect(found.text).toContain(weights);
    expect(found.exact).toBe('true');
    expect(found.tokens).toBeGreaterThan(20);
    expect(found.most <= 1e-5).toBe(true);
    expect(await opened.page.locator('.turns .tok.scaled').count()).toBe(found.tokens);
    expect(await seenText(opened.page.locator('.token-card'))).toMatch(/Replayed\s+-?[\d.e-]+ nats\s+Difference/);
  });

  it('clips the tokens that the run clipped in its second step, each with a sign', async () => {
    const { page } = opened;
    const step = readFileSync(join(run, 'journal.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { kind: string; data: { step: number; metrics: Record<string, number> } })
      .find(({ kind, data }) => kind === 'step' && data.step === 2)!;
    const counted = { tokens: 0, low: 0, high: 0 };
    let least = 1;
    for (let line = 1; line <= 4; line++) {
      const found = await replay(page, 'step-000001.jsonl', line, 'checkpoints/step-000001');
      expect(found.exact).toBe('false');
      counted.tokens += found.tokens;
      await page.getByRole('link', { name: 'Open the rollout with these values' }).click();
      await page.getByLabel('Colour by').selectOption('clip');
      await page.getByText(/log-probs of a replay with checkpoints\/step-000001 against the recorded/).waitFor();
      for (const state of ['low', 'high'] as const) {
        const marked = page.locator(`.turns .tok.clip-${state}`);
        const many = await marked.count();
        counted[state] += many;
        for (const token of (await marked.all()).slice(0, 1)) {
          const sign = await token.evaluate((element) => getComputedStyle(element, '::after').content);
          expect(sign).toBe(state === 'low' ? '"▾"' : '"▴"');
          await token.click();
          const card = await seenText(page.locator('.token-card'));
          expect(card).toContain(`clipped ${state}`);
          expect(card).toContain('dapo: ratio in [0.8, 1.2]');
          least = Math.min(least, Number(/Ratio\s+([\d.]+)/.exec(card)![1]));
        }
      }
    }
    const { metrics } = step.data;
    const share = (name: string) => Math.round(metrics[name]! * counted.tokens);
    expect(metrics['clip_ratio/region_mean']).toBeGreaterThan(0);
    expect(counted.low).toBe(share('clip_ratio/low_mean'));
    expect(counted.high).toBe(share('clip_ratio/high_mean'));
    expect(least).toBeLessThan(0.8);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect([colorScheme, await axeFindings(page)]).toEqual([colorScheme, []]);
    }
    expect(opened.errors).toEqual([]);
  });

  it('says that every ratio is 1 where no later policy was replayed', async () => {
    const { page } = opened;
    await page.goto(`${server.url}#/rollout?file=rollouts%2Fstep-000003.jsonl&line=1`);
    await page.getByLabel('Colour by').selectOption('clip');
    await page.getByText(/the policy is the sampler, whose log-probs are recorded; so every ratio is 1/).waitFor();
    const sampled = await page.locator('.turns .tok.masked').count();
    expect(await page.locator('.turns .tok.clip-open').count()).toBe(sampled);
    await page.locator('.turns .tok.clip-open').first().click();
    const card = await seenText(page.locator('.token-card'));
    expect(card).toMatch(/Ratio\s+1\s+Clip\s+open\s+Bounds\s+dapo/);
    expect(card).toMatch(/Entropy\s+[\d.e-]+ nats/);
  });
});
