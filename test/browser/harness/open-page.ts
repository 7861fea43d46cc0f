// A fixture run, its inspector and a page of headless Chromium, for the end-to-end tests.
// Not a mock: the server, the built page and the browser are the real ones. Invariant: what was opened is closed, and
// every address that the page asked for is known.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import AxeBuilder from '@axe-core/playwright';
import { type Browser, type BrowserContext, chromium, type Locator, type Page } from 'playwright';
import { openRunFolder } from '../../../src/inspect/run-folder-node.ts';
import { type InspectServer, startInspect } from '../../../workers/inspect-node.ts';
import { embeddedPolicyFolder, inspectorPage } from '../../../workers/inspect-page-node.ts';
import { chromiumArguments, chromiumPath } from '../chromium.ts';

export const scratchFolder = (): string => mkdtempSync(join(tmpdir(), 'shaderl-inspect-'));
export const removeFolder = (folder: string): void => rmSync(folder, { recursive: true, force: true });

/** Chromium with or without its WebGPU. */
export const launch = (webgpu = true): Promise<Browser> =>
  chromium.launch({
    executablePath: chromiumPath(),
    args: webgpu
      ? chromiumArguments
      : [...chromiumArguments.filter((arg) => !/webgpu/.test(arg)), '--disable-features=WebGPU'],
  });

export async function serveRuns(folders: readonly string[]): Promise<InspectServer> {
  const runs = [];
  for (const folder of folders) runs.push(await openRunFolder(folder));
  const page = await inspectorPage(() => {});
  const sourceSha256 = 'a'.repeat(64);
  return startInspect({ runs, page, embedded: embeddedPolicyFolder, sourceSha256, port: 0, pollMs: 100 });
}

export interface OpenedPage {
  context: BrowserContext;
  page: Page;
  /** Addresses that were asked for, and what went wrong in the page. */
  requests: string[];
  errors: string[];
}

export async function openPage(browser: Browser, colorScheme: 'light' | 'dark' = 'light'): Promise<OpenedPage> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const requests: string[] = [];
  const errors: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  return { context, page, requests, errors };
}

/** The text of what a locator finds, as it is seen. */
export const seenText = async (found: Locator): Promise<string> => (await found.allInnerTexts()).join('\n');

/** Findings of axe that are serious or worse, as lines. */
export async function axeFindings(page: Page): Promise<string[]> {
  const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21aa']).analyze();
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(
      ({ id, nodes }) =>
        `${id}: ${nodes
          .map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`)
          .join(' | ')
          .slice(0, 600)}`,
    );
}
