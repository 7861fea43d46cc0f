// The second opinion of tfjs in the page, on SwiftShader: what it compares, what it fetches, and the page's size.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Browser } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { writeFixtureRun } from '../../support/inspect-run.ts';
import { axeFindings, launch, openPage, removeFolder, scratchFolder, serveRuns } from './open-page.ts';

const folder = scratchFolder();
const built = fileURLToPath(new URL('../../../dist/harness', import.meta.url));
let browser: Browser;
let server: InspectServer;

beforeAll(async () => {
  await writeFixtureRun(join(folder, 'run'), { steps: 1, groupSize: 2 });
  browser = await launch();
  server = await serveRuns([join(folder, 'run')]);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

describe('the second opinion', () => {
  it('finds products, norms, softmax and log-softmax of tfjs within twice the bound, on the same adapter', async () => {
    const { page, requests, errors, context } = await openPage(browser);
    const isTfjs = (url: string) => /assets\/tfjs\.worker-[\w-]+\.js$/.test(url);
    await page.goto(`${server.url}#/qualify`);
    await page.getByRole('button', { name: 'Ask tfjs' }).waitFor();
    expect(requests.filter(isTfjs)).toEqual([]);
    await page.goto(`${server.url}#/qualify?against=tfjs`);
    const result = page.locator('[data-result=opinion]');
    await result.waitFor({ timeout: 200_000 });
    expect(await result.getAttribute('data-agrees')).toBe('true');
    expect(await result.textContent()).toMatch(/tfjs 4\.\d+\.\d+ agrees: Both on .*SwiftShader/i);
    const rows = await page.locator('tr[data-kernel]').evaluateAll((list) =>
      list.map((row) => ({
        kernel: row.getAttribute('data-kernel')!,
        ratios: [...row.querySelectorAll('.bar-text')].map((text) => Number(text.textContent!.replace('equal', '0'))),
        values: Number(/^\d+/.exec(row.children[2]!.textContent!)![0]),
      })),
    );
    for (const kernel of ['matmul', 'matmul-tiled', 'rmsnorm', 'attention-softmax', 'logprobs']) {
      const row = rows.find((one) => one.kernel === kernel)!;
      expect([kernel, row.values > 5]).toEqual([kernel, true]);
      const [own, other, apart] = row.ratios;
      expect(own! <= 1 && other! <= 1 && apart! <= 2).toBe(true);
    }
    // Two programs that give the same bits everywhere would be one program.
    expect(rows.some(({ ratios }) => ratios[2]! > 0)).toBe(true);
    expect(requests.filter(isTfjs)).toHaveLength(1);
    const foreign = requests.filter((url) => !url.startsWith(server.url) && !/^(data|blob):/.test(url));
    expect(foreign).toEqual([]);
    expect(errors).toEqual([]);
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect([colorScheme, await axeFindings(page)]).toEqual([colorScheme, []]);
    }
    await context.close();
  });

  it('is the only file that the server has beside the page', async () => {
    const [name] = readdirSync(join(built, 'assets'));
    const answer = async (path: string) => (await fetch(`${server.url}${path}`)).status;
    expect(await answer(`assets/${name}`)).toBe(200);
    for (const path of ['assets/', 'assets/other.js', 'assets/..%2Findex.html', 'assets/%2e%2e/index.html']) {
      expect([path, await answer(path)]).toEqual([path, 404]);
    }
  });

  it('keeps the page under 1 MB compressed, the tfjs file included', () => {
    const size = (path: string) => gzipSync(readFileSync(path)).length;
    const assets = readdirSync(join(built, 'assets'));
    expect(assets).toHaveLength(1);
    const page = size(join(built, 'index.html'));
    const tfjs = size(join(built, 'assets', assets[0]!));
    expect(page).toBeLessThan(500_000);
    expect(page + tfjs).toBeLessThan(1_000_000);
  });
});
