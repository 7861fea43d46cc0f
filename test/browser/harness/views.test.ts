// The views on a finished run, in headless Chromium: what a person does, and what stands on the page afterwards.
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Episode } from '../../../src/rollout/episode.ts';
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
let browser: Browser;
let server: InspectServer;
let opened: OpenedPage;
let planted: { line: number; token: number };

/** A rollout whose mask misses one sampled token. */
function plantMaskError(episodes: Episode[], step: number): void {
  if (step !== 2) return;
  const episode = episodes[1]!;
  const token = episode.turns[0]!.span[0] + 4;
  episode.mask[token] = 0;
  planted = { line: 2, token };
}

beforeAll(async () => {
  const a = join(folder, 'run-a');
  const b = join(folder, 'run-b');
  await writeFixtureRun(a, { steps: 6, edit: plantMaskError });
  await writeFixtureRun(b, { steps: 3, skill: [0.8, 1] });
  const wrongSchema = JSON.stringify({ schema: 'shaderl.episode/9', taskId: 'x' });
  appendFileSync(join(a, 'rollouts/step-000003.jsonl'), `{"schema":"shaderl.ep\n${wrongSchema}\n`);
  browser = await launch();
  server = await serveRuns([a, b]);
  opened = await openPage(browser);
  await opened.page.goto(server.url);
  await opened.page.getByRole('heading', { name: 'run-a' }).waitFor();
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

const at = (hash: string) => `${server.url}${hash}`;
const rolloutUrl = (line: number, step = 2) => at(`#/rollout?file=rollouts%2Fstep-00000${step}.jsonl&line=${line}`);

describe('the Run view', () => {
  it('shows curves, device, plan, evaluations, the checkpoint and the resume', async () => {
    const { page } = opened;
    await page.goto(at('#/run'));
    const charts = page.getByRole('img', { name: /over 6 steps/ });
    await charts.first().waitFor();
    expect(await charts.count()).toBe(9);
    const text = await seenText(page.locator('main'));
    for (const wanted of [
      '6 of 6',
      'webgpu 0.6.2, portable',
      'sealed checkpoints/step-000003',
      'resumed at 2026-10-20',
      'after at step 6',
    ]) {
      expect(text).toContain(wanted);
    }
  });

  it('opens the rollouts of the step that is clicked in a curve', async () => {
    const { page } = opened;
    await page.goto(at('#/run'));
    const over = page.locator('.chart .u-over').first();
    const box = (await over.boundingBox())!;
    await page.mouse.move(box.x + box.width - 2, box.y + box.height / 2);
    await page.mouse.click(box.x + box.width - 2, box.y + box.height / 2);
    await page.waitForURL(/rollouts\?step=6/);
    await page.getByText('4 of 74 rollouts').waitFor();
  });
});

describe('the rollouts list', () => {
  it('opens a row by the keyboard alone', async () => {
    const { page } = opened;
    await page.goto(at('#/rollouts?step=2'));
    const grid = page.getByRole('grid', { name: 'Rollouts' });
    await page.getByText('4 of 74').waitFor();
    await grid.focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(/rollout\?file=rollouts%2Fstep-000002.jsonl&line=2/);
  });

  it('filters by outcome and keeps the filter in the address', async () => {
    const { page } = opened;
    await page.goto(at('#/rollouts'));
    await page.getByText('74 of 74').waitFor();
    await page.getByLabel('malformed call').check();
    await page.waitForURL(/malformed=1/);
    const rows = page.locator('.spacer .row');
    expect(await rows.count()).toBeGreaterThan(0);
    for (const text of await rows.allInnerTexts()) expect(text).toContain('malformed call');
    const status = await seenText(page.locator('main > p[role=status]'));
    await page.reload();
    await page.getByText(status).waitFor();
  });

  it('finds text in the rollouts and opens the match at its token', async () => {
    const { page } = opened;
    await page.goto(at('#/rollouts'));
    await page.getByLabel('Text').fill('ungültiger aufruf');
    await page.getByLabel('Text').press('Enter');
    await page.getByText(/\d+ of 74 rollouts, [1-9]\d* text match/).waitFor();
    await page.locator('.spacer .row').first().click();
    await page.waitForURL(/token=\d+/);
    await page.locator('.tok.chosen').waitFor();
    const around = await page.locator('.tok.chosen').evaluate((tok) => {
      let text = '';
      for (let e: Element | null = tok; e && text.length < 30; e = e.nextElementSibling) text += e.textContent;
      return text;
    });
    expect(around.toLowerCase()).toContain('ltiger aufruf');
  });

  it('audits the rollouts that are shown and filters those with findings', async () => {
    const { page } = opened;
    await page.goto(at('#/rollouts?step=2'));
    await page.getByText('4 of 74').waitFor();
    await page.getByRole('button', { name: 'Audit these' }).click();
    await page.getByText('audited 4: 1 rollout with findings').waitFor();
    await page.getByLabel('audit findings').check();
    await page.getByText('1 of 74').waitFor();
    expect(await seenText(page.locator('.spacer .row'))).toContain('1 audit finding');
  });

  it('names the lines that cannot be read and shows the others', async () => {
    const { page } = opened;
    await page.goto(at('#/rollouts?step=3'));
    await page.getByText('6 of 74').waitFor();
    const broken = await page.locator('.row.broken').allInnerTexts();
    expect(broken).toHaveLength(2);
    expect(broken[1]).toContain('schema "shaderl.episode/9"; wanted schema "shaderl.episode/1"');
    await page.goto(rolloutUrl(6, 3));
    await page
      .getByRole('alert')
      .getByText(/line 6: found schema "shaderl.episode\/9"/)
      .waitFor();
    await page.goto(rolloutUrl(1, 3));
    await page.locator('.tok').first().waitFor({ state: 'attached' });
  });
});

describe('the Rollout view', () => {
  it('shows the planted mask error at its token, and no finding on a sound rollout', async () => {
    const { page } = opened;
    await page.goto(rolloutUrl(planted.line));
    await page.getByRole('heading', { name: /Audit: 1 finding/ }).waitFor();
    const found = page.locator('.tok.found');
    expect(await found.count()).toBe(1);
    expect(await found.getAttribute('data-i')).toBe(String(planted.token));
    await page.getByRole('button', { name: `token ${planted.token}` }).click();
    const card = await seenText(page.locator('.token-card'));
    expect(card).toContain('found mask 0; wanted 1 on a sampled token');
    await page.goto(rolloutUrl(1));
    await page.getByRole('heading', { name: 'Audit: no finding' }).waitFor();
    await page.getByText('Checked: everything but the recomputed log-probs.').waitFor();
  });

  it('moves through tokens with the arrow keys and says what each is', async () => {
    const { page } = opened;
    await page.goto(rolloutUrl(1));
    await page.locator('.turns').focus();
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight']) await page.keyboard.press(key);
    const chosen = page.locator('.tok.chosen');
    await chosen.waitFor();
    const i = Number(await chosen.getAttribute('data-i'));
    const card = await seenText(page.locator('.token-card'));
    expect(card).toContain(`${i} of `);
    expect(card).toMatch(/sampled[\s\S]*Loss mask\s+1[\s\S]*Log-prob\s+-?[\d.e-]+ nats[\s\S]*Advantage/);
    expect(page.url()).toContain(`token=${i}`);
  });

  it('tells sources apart without colour, and colours by log-prob and advantage on request', async () => {
    const { page } = opened;
    await page.goto(rolloutUrl(1));
    const looks = async (source: string) =>
      page
        .locator(`.turns .tok.src-${source}`)
        .last()
        .evaluate((tok) => {
          const { textDecorationStyle, textDecorationLine, fontStyle, borderTopStyle } = getComputedStyle(tok);
          return [textDecorationLine, textDecorationStyle, fontStyle, borderTopStyle].join(' ');
        });
    await page.locator('.turns .tok.src-observation').first().waitFor();
    const all = [await looks('prompt'), await looks('sampled'), await looks('template'), await looks('observation')];
    expect(new Set(all).size).toBe(4);
    expect(await page.locator('.tok.scaled').count()).toBe(0);
    await page.getByLabel('Colour by').selectOption('logprob');
    const sampled = await page.locator('.turns .tok.src-sampled').count();
    expect(await page.locator('.turns .tok.scaled').count()).toBe(sampled);
    await page.getByLabel('Colour by').selectOption('none');
  });

  it('says what the token under the pointer is, and goes back to the chosen one when the pointer leaves', async () => {
    const { page } = opened;
    await page.goto(rolloutUrl(1));
    const sampled = page.locator('.turns .tok.src-sampled');
    await sampled.nth(3).click();
    const indexOf = async (n: number) => Number(await sampled.nth(n).getAttribute('data-i'));
    const card = page.locator('.token-card');
    await sampled.nth(9).hover();
    await card.getByText(`${await indexOf(9)} of `).waitFor();
    expect(await seenText(card)).toMatch(/Source\s+sampled[\s\S]*Log-prob[\s\S]*Probability[\s\S]*Advantage/);
    await page.getByRole('heading', { level: 1 }).hover();
    await card.getByText(`${await indexOf(3)} of `).waitFor();
  });

  it('shows and hides the loss mask and the signs of whitespace, and names special tokens', async () => {
    const { page } = opened;
    await page.goto(rolloutUrl(1));
    const masked = page.locator('.turns .tok.masked').first();
    const newline = page.locator('.turns .tok .ws[data-ws="⏎"]').first();
    await masked.waitFor();
    const bar = () => masked.evaluate((tok) => getComputedStyle(tok).boxShadow);
    const sign = () => newline.evaluate((tok) => getComputedStyle(tok, '::before').content);
    expect([await bar(), await sign()]).toEqual([expect.stringContaining('inset'), '"⏎"']);
    await page.getByLabel(/loss mask/).uncheck();
    await page.getByLabel('whitespace').uncheck();
    expect([await bar(), await sign()]).toEqual(['none', 'none']);
    await page.getByLabel(/loss mask/).check();
    await page.getByLabel('whitespace').check();
    expect([await bar(), await sign()]).toEqual([expect.stringContaining('inset'), '"⏎"']);
    expect(await page.locator('.turns .tok.control').allTextContents()).toContain('<|im_end|>');
  });

  it('lays a group side by side and jumps from difference to difference', async () => {
    const { page } = opened;
    await page.goto(rolloutUrl(1));
    await page.getByRole('link', { name: /side by side with its group of 4/ }).click();
    await page.getByRole('columnheader', { name: /Member 3/ }).waitFor();
    await page.locator('.beside').focus();
    await page.keyboard.press('n');
    const status = await seenText(page.locator('.beside [role=status]'));
    expect(status).toMatch(/Difference 1 of [1-9]/);
    const marked = page.locator('tr.here .tok.differs');
    expect(await marked.count()).toBeGreaterThan(1);
    const ids = await marked.evaluateAll((toks) => toks.map((tok) => tok.textContent));
    expect(new Set(ids).size).toBeGreaterThan(1);
  });
});

describe('the Comparison view', () => {
  it('counts wins and losses of two evaluations and shows an item on both sides', async () => {
    const { page } = opened;
    await page.goto(at('#/compare'));
    await page.getByRole('button', { name: 'all 24' }).waitFor();
    await page.getByRole('button', { name: /B wins: [1-9]/ }).click();
    await page.waitForURL(/show=win/);
    const second = page.locator('.spacer .row').nth(1);
    await second.click();
    expect(await second.getAttribute('aria-selected')).toBe('true');
    expect(await page.locator('.spacer [aria-selected=true]').count()).toBe(1);
    await page.getByRole('columnheader', { name: /A: run-a/ }).waitFor();
    await page.getByRole('columnheader', { name: /B: run-a/ }).waitFor();
    expect(await page.locator('.aligned .tok').count()).toBeGreaterThan(100);
  });

  it('compares the training rollouts of two runs', async () => {
    const { page } = opened;
    await page.goto(at('#/compare?a=0%3A&b=1%3A'));
    await page.getByRole('button', { name: /only A has it: 12/ }).waitFor();
  });
});

describe('the page', () => {
  const places = [
    '#/run',
    '#/rollouts',
    '#/rollout?file=rollouts%2Fstep-000002.jsonl&line=2',
    '#/group?file=rollouts%2Fstep-000002.jsonl&group=0',
    '#/compare',
  ];
  it.each(['light', 'dark'] as const)('has no serious accessibility finding in %s', async (scheme) => {
    const { page, context } = await openPage(browser, scheme);
    // The colours are all that differs in the dark, and three views have them all.
    for (const place of scheme === 'dark' ? places.slice(0, 3) : places) {
      await page.goto(at(place));
      await page.reload();
      await page.locator('main h1').waitFor();
      await page.waitForTimeout(300);
      const scale = page.getByLabel('Colour by');
      if (await scale.isVisible()) await scale.selectOption('advantage');
      expect([place, await axeFindings(page)]).toEqual([place, []]);
    }
    await context.close();
  });

  it('fits a narrow window: lists and columns scroll sideways in themselves, the page does not', async () => {
    const { page, context } = await openPage(browser);
    await page.setViewportSize({ width: 480, height: 900 });
    for (const place of [...places, '#/device', '#/qualify']) {
      await page.goto(at(place));
      await page.locator('main h1').waitFor();
      await page.waitForTimeout(300);
      const width = await page.evaluate(() => document.scrollingElement!.scrollWidth);
      expect([place, width]).toEqual([place, 480]);
    }
    await page.goto(at('#/rollouts'));
    await page.locator('.spacer .row').first().waitFor();
    const [inner, outer] = await page.locator('.grid').evaluate((grid) => [grid.scrollWidth, grid.clientWidth]);
    expect(inner).toBeGreaterThan(outer!);
    const last = page.locator('.spacer .row').first().locator('[role=gridcell]').last();
    await last.scrollIntoViewIfNeeded();
    const box = (await last.boundingBox())!;
    expect(box.x + box.width).toBeLessThanOrEqual(480);
    await context.close();
  });

  it('follows the colours of the system while they are not chosen in the page', async () => {
    const { page, context } = await openPage(browser);
    await page.goto(at('#/run'));
    await page.locator('main h1').waitFor();
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await ground();
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.locator('html[data-theme=dark]').waitFor();
    expect(await ground()).not.toBe(light);
    await page.getByLabel('Colours').selectOption('light');
    await page.emulateMedia({ colorScheme: 'light' });
    await page.emulateMedia({ colorScheme: 'dark' });
    expect(await ground()).toBe(light);
    await context.close();
  });

  it('asks nobody but its own server, and logs no error', () => {
    expect(opened.requests.length).toBeGreaterThan(10);
    const foreign = opened.requests.filter((url) => !url.startsWith(server.url) && !/^(data|blob):/.test(url));
    expect(foreign).toEqual([]);
    expect(opened.errors).toEqual([]);
  });
});
