// A run of 5,000 rollouts of 768 tokens each: it opens, its list holds few rows at a time, and its last one is reached.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Episode } from '../../../src/rollout/episode.ts';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { linesOf, writeFixtureRun } from '../../support/inspect-run.ts';
import { launch, openPage, removeFolder, scratchFolder, serveRuns } from './open-page.ts';

const folder = scratchFolder();
const run = join(folder, 'large');
const [files, perFile, sampled] = [250, 20, 768];
let browser: Browser;
let server: InspectServer;

/** The record with its last values repeated until it has `sampled` tokens after the prompt. */
function stretched(episode: Episode): Episode {
  const length = episode.promptLength + sampled;
  const fill = <T>(list: readonly T[]) =>
    Array.from({ length }, (_, i) => list[Math.min(i, list.length - 1 - (i % 40))]!);
  const { ids, sources, mask, logprobs, truncatedLogprobs } = episode;
  return {
    ...episode,
    ids: fill(ids),
    sources: fill(sources),
    mask: fill(mask),
    logprobs: fill(logprobs),
    truncatedLogprobs: fill(truncatedLogprobs),
  };
}

beforeAll(async () => {
  const fixture = await writeFixtureRun(join(folder, 'small'), { steps: 1 });
  const group = (await fixture.episodes(1)).map(stretched);
  const text = linesOf(Array.from({ length: perFile }, (_, i) => ({ ...group[i % 4]!, group: Math.floor(i / 4) })));
  mkdirSync(join(run, 'rollouts'), { recursive: true });
  for (let step = 1; step <= files; step++) {
    writeFileSync(join(run, `rollouts/step-${String(step).padStart(6, '0')}.jsonl`), text);
  }
  browser = await launch();
  server = await serveRuns([run]);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

it('lists all of them in seconds, with few rows in the page at a time, and opens the last', async () => {
  const { page, context, errors } = await openPage(browser);
  const began = performance.now();
  await page.goto(`${server.url}#/rollouts`);
  await page.locator('.spacer .row').first().waitFor();
  const first = performance.now() - began;
  await page.getByText(`${files * perFile} of ${files * perFile}`).waitFor();
  // Under 3 s on an idle machine; this one may be shared by other tests.
  expect(first).toBeLessThan(8000);
  const grid = page.getByRole('grid', { name: 'Rollouts' });
  expect(await page.locator('.spacer .row').count()).toBeLessThan(120);
  await grid.focus();
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await page.waitForURL(/step-000250\.jsonl&line=20/);
  await page.locator('.turns .tok').first().waitFor({ state: 'attached' });
  expect(await page.locator('.turns .tok').count()).toBeGreaterThan(sampled);
  expect(errors).toEqual([]);
  await context.close();
});
