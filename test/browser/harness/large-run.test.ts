// A run of 5,000 rollouts of 768 tokens each: it opens, its list holds few rows at a time, its last one is reached, and
// a frame of scrolling changes as little as in a small run. Times: tools/harness/scroll-times.ts.
import { join } from 'node:path';
import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { type LargeRun, writeLargeRun } from '../../support/large-run.ts';
import { launch, openPage, removeFolder, scratchFolder, serveRuns } from './open-page.ts';

const folder = scratchFolder();
const large: LargeRun = { files: 250, perFile: 20, sampled: 768 };
const small: LargeRun = { files: 5, perFile: 20, sampled: 768 };
const rowHeight = 30;
let browser: Browser;
let server: InspectServer;

beforeAll(async () => {
  await writeLargeRun(join(folder, 'large'), join(folder, 'fixture-a'), large);
  await writeLargeRun(join(folder, 'small'), join(folder, 'fixture-b'), small);
  browser = await launch();
  server = await serveRuns([join(folder, 'large'), join(folder, 'small')]);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

interface FrameChanges {
  /** Nodes that came into the document over all frames. */
  added: number;
  /** The most attributes and texts that one frame changed. */
  changed: number;
  /** Frames that changed anything. */
  busy: number;
  /** Pixels that were scrolled. */
  moved: number;
}

/** Scrolls an element, or the window, by `pixels` in each of `frames` frames and counts what the page does about it. */
function scrollFrames(page: Page, selector: string | null, pixels: number, frames: number): Promise<FrameChanges> {
  return page.evaluate(
    async ([wanted, by, count]) => {
      const scroller = (wanted === null ? document.scrollingElement : document.querySelector(wanted))!;
      const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
      // What an earlier change still draws is no part of the scrolling.
      for (let i = 0; i < 5; i++) await frame();
      let records: MutationRecord[] = [];
      const observer = new MutationObserver((more) => records.push(...more));
      const options = { subtree: true, childList: true, attributes: true, characterData: true };
      observer.observe(document.body, options);
      const from = scroller.scrollTop;
      const totals = { added: 0, changed: 0, busy: 0, moved: 0 };
      for (let i = 0; i < count; i++) {
        records = [];
        scroller.scrollTop += by;
        // The scroll event comes with the next frame, before its callbacks.
        await frame();
        await frame();
        for (const record of records) totals.added += record.addedNodes.length;
        const changes = records.filter(({ type }) => type !== 'childList').length;
        totals.changed = Math.max(totals.changed, changes);
        if (records.length > 0) totals.busy += 1;
      }
      observer.disconnect();
      totals.moved = scroller.scrollTop - from;
      return totals;
    },
    [selector, pixels, frames] as const,
  );
}

async function openList(run: number, size: LargeRun) {
  const opened = await openPage(browser);
  const count = size.files * size.perFile;
  await opened.page.goto(`${server.url}#/rollouts?run=${run}`);
  await opened.page.getByText(`${count} of ${count}`).waitFor();
  return opened;
}

it('lists all of them in seconds, with few rows in the page at a time, and opens the last', async () => {
  const { page, context, errors } = await openPage(browser);
  const began = performance.now();
  await page.goto(`${server.url}#/rollouts`);
  await page.locator('.spacer .row').first().waitFor();
  const first = performance.now() - began;
  await page.getByText('5000 of 5000').waitFor();
  // Under 3 s on an idle machine; this one may be shared by other tests.
  expect(first).toBeLessThan(8000);
  const grid = page.getByRole('grid', { name: 'Rollouts' });
  expect(await page.locator('.spacer .row').count()).toBeLessThan(120);
  await grid.focus();
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await page.waitForURL(/step-000250\.jsonl&line=20/);
  await page.locator('.turns .tok').first().waitFor({ state: 'attached' });
  expect(await page.locator('.turns .tok').count()).toBeGreaterThan(large.sampled);
  expect(errors).toEqual([]);
  await context.close();
});

describe('a frame of scrolling', () => {
  it.each([
    ['a run of 5,000 rollouts', 0, large],
    ['a run of 100 rollouts', 1, small],
  ] as const)('makes no node and changes the rows that come in alone, in %s', async (_, run, size) => {
    const { page, context } = await openList(run, size);
    const pixels = 50;
    const seen = await scrollFrames(page, '.grid', pixels, 40);
    expect(seen.moved).toBe(40 * pixels);
    expect(seen.busy).toBeGreaterThan(20);
    expect(seen.added).toBe(0);
    // A row has 8 cells of at most two changes, 5 attributes, and the list one of its own.
    const rows = Math.ceil(pixels / rowHeight) + 1;
    expect(seen.changed).toBeLessThanOrEqual(rows * (2 * 8 + 5) + 1);
    await context.close();
  });

  it('shows each row at its place, with its own texts, wherever the list stands', async () => {
    const { page, context } = await openList(0, large);
    const list = page.locator('.grid');
    for (const top of [0, 74_990, 12_345, 149_000]) {
      await list.evaluate((grid, to) => {
        grid.scrollTop = to;
      }, top);
      await page.waitForFunction(
        (to) => [...document.querySelectorAll<HTMLElement>('.spacer .row')].some((row) => row.offsetTop === to),
        Math.floor(top / rowHeight) * rowHeight,
      );
      const rows = await page.locator('.spacer .row').evaluateAll((all) =>
        all.map((row) => ({
          index: Number(row.getAttribute('aria-rowindex')) - 2,
          top: (row as HTMLElement).offsetTop,
          step: row.firstElementChild!.textContent,
          current: row.getAttribute('aria-selected'),
        })),
      );
      expect(new Set(rows.map(({ index }) => index)).size).toBe(rows.length);
      for (const { index, top: place, step, current } of rows) {
        expect([index, place, step, current]).toEqual([
          index,
          index * rowHeight,
          `step ${Math.floor(index / large.perFile) + 1}`,
          String(index === 0),
        ]);
      }
    }
    await context.close();
  });

  it('changes nothing at all in a token stream and in a group side by side', async () => {
    const { page, context } = await openPage(browser);
    const file = 'file=rollouts%2Fstep-000100.jsonl';
    for (const [place, tokens] of [
      [`#/rollout?${file}&line=1`, '.turns .tok'],
      [`#/group?${file}&group=0`, '.aligned .tok'],
    ] as const) {
      await page.goto(server.url + place);
      await page.locator(tokens).nth(large.sampled).waitFor({ state: 'attached' });
      const seen = await scrollFrames(page, null, 20, 20);
      expect([place, seen.moved > 0, seen.added, seen.changed]).toEqual([place, true, 0, 0]);
    }
    await context.close();
  });
});
