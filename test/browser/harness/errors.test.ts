// What goes wrong in the page: a lost device, giant and broken files, a lost connection, a folder that is no model.
// Each is said in words, and the rest keeps working.
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { type FixtureRun, linesOf, tokenizerFolder, writeFixtureRun } from '../../support/inspect-run.ts';
import { axeFindings, launch, openPage, removeFolder, scratchFolder, seenText, serveRuns } from './open-page.ts';

const folder = scratchFolder();
const slow = { timeout: 120_000 };
let fixture: FixtureRun;
let browser: Browser;
let server: InspectServer;

beforeAll(async () => {
  fixture = await writeFixtureRun(join(folder, 'run'), { steps: 2 });
  browser = await launch();
  server = await serveRuns([join(folder, 'run')]);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

interface DroppedFile {
  name: string;
  text: string;
  /** MiB of letters after the text. */
  fill?: number;
}

/** Drops files on the page as a person does. */
function drop(page: Page, files: readonly DroppedFile[]): Promise<void> {
  return page.evaluate((list) => {
    const transfer = new DataTransfer();
    for (const { name, text, fill = 0 } of list) {
      const block = new Uint8Array(2 ** 20).fill(120);
      transfer.items.add(new File([text, ...Array.from({ length: fill }, () => block)], name));
    }
    window.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }, files);
}

const fromDisk = () => pathToFileURL(fileURLToPath(new URL('../../../dist/harness/index.html', import.meta.url))).href;

describe('dropped files', () => {
  it('names a broken line and a wrong schema version in a dropped file, and opens its other rollouts', async () => {
    const { page, context, errors } = await openPage(browser);
    await page.goto(fromDisk());
    const wrong = JSON.stringify({ schema: 'shaderl.episode/2', taskId: 'x' });
    const good = linesOf(await fixture.episodes(1));
    await drop(page, [{ name: 'step-000001.jsonl', text: `${good}{"schema":"shaderl.ep\n${wrong}\n` }]);
    await page.getByText('6 of 6 rollouts').waitFor();
    const broken = await page.locator('.row.broken').allTextContents();
    expect(broken).toHaveLength(2);
    expect(broken[0]).toMatch(/found .*JSON.*; wanted one rollout as JSON/);
    expect(broken[1]).toContain('schema "shaderl.episode/2"; wanted schema "shaderl.episode/1"');
    await page.locator('.row.broken').last().click();
    await page
      .getByRole('alert')
      .getByText(/line 6: found schema "shaderl.episode\/2"/)
      .waitFor();
    await page.getByRole('link', { name: 'Rollouts' }).click();
    await page.locator('.spacer .row').first().click();
    await page.locator('.turns .tok').first().waitFor({ state: 'attached' });
    expect(errors).toEqual([]);
    await context.close();
  });

  it('says that a giant file is too large, and shows the rollouts dropped beside it', async () => {
    const { page, context, errors } = await openPage(browser);
    await page.goto(fromDisk());
    await drop(page, [
      { name: 'evaluation.json', text: '{', fill: 300 },
      { name: 'giant.jsonl', text: '{"schema":', fill: 80 },
      { name: 'notes.txt', text: 'nothing' },
      { name: 'step-000001.jsonl', text: linesOf(await fixture.episodes(1)) },
    ]);
    const faults = page.locator('.faults');
    await faults.getByText(/reading evaluation.json: found 300 MiB; wanted at most 256 MiB/).waitFor(slow);
    await faults.getByText(/reading notes.txt: found a file of no known kind/).waitFor(slow);
    await page.getByText('5 of 5 rollouts').waitFor(slow);
    expect(await seenText(page.locator('.row.broken'))).toContain('a line of more than 64 MiB; wanted one rollout');
    await page.locator('.spacer .row:not(.broken)').first().click();
    await page.locator('.turns .tok').first().waitFor({ state: 'attached' });
    expect(errors).toEqual([]);
    await context.close();
  });
});

/** A wire between page and server that can be cut and mended at the same port. */
async function wire(to: number): Promise<{ port: number; cut(): Promise<void>; mend(): Promise<void> }> {
  const sockets = new Set<Socket>();
  let listening: Server;
  const listen = (port: number) =>
    new Promise<number>((resolve) => {
      listening = createServer((socket) => {
        const other = connect(to, '127.0.0.1');
        for (const [from, into] of [
          [socket, other],
          [other, socket],
        ] as const) {
          sockets.add(from);
          from.on('error', () => into.destroy());
          from.on('close', () => into.destroy());
          from.pipe(into);
        }
      }).listen(port, '127.0.0.1', () => resolve((listening.address() as { port: number }).port));
    });
  const port = await listen(0);
  return {
    port,
    cut: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        listening.close(() => resolve());
      }),
    mend: async () => {
      await listen(port);
    },
  };
}

describe('a lost connection', () => {
  it('comes back by itself with the steps that were missed', async () => {
    const between = await wire(server.port);
    const { page, context } = await openPage(browser);
    await page.goto(server.url.replace(`:${server.port}`, `:${between.port}`));
    await page.getByText('● live').waitFor();
    await page
      .getByRole('img', { name: /over 2 steps/ })
      .first()
      .waitFor();
    await between.cut();
    await page.getByText('connection lost, trying again').waitFor();
    expect(await fixture.addStep()).toBe(3);
    await between.mend();
    await page.getByText('● live').waitFor(slow);
    await page
      .getByRole('img', { name: /over 3 steps/ })
      .first()
      .waitFor();
    await page.getByRole('link', { name: 'Rollouts' }).click();
    await page.getByText('60 of 60').waitFor();
    await context.close();
    await between.cut();
  });
});

describe('the folder picker', () => {
  it('loads a policy from a picked folder, without a server, and answers with it', async () => {
    const { page, context, requests, errors } = await openPage(browser);
    await page.goto(`${fromDisk()}#/device?tab=chat`);
    await page.locator('#folder').setInputFiles(tokenizerFolder);
    await page.getByText('Ready.').waitFor(slow);
    await page.getByText('the picked folder').waitFor();
    await page.getByLabel('Most tokens').fill('48');
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.locator('[data-result=chat]').waitFor(slow);
    expect(await page.locator('.tok.src-sampled').count()).toBeGreaterThan(5);
    expect(requests.filter((url) => !/^(file|data|blob):/.test(url))).toEqual([]);
    expect(errors).toEqual([]);
    await context.close();
  });

  it('names what a folder lacks, and takes a whole one afterwards', async () => {
    const lacking = join(folder, 'lacking');
    mkdirSync(lacking);
    cpSync(tokenizerFolder, lacking, { recursive: true });
    rmSync(join(lacking, 'model.safetensors'), { force: true });
    writeFileSync(join(lacking, 'config.json'), '{"model_type":"qwen3"');
    const { page, context } = await openPage(browser);
    await page.goto(`${fromDisk()}#/device`);
    await page.locator('#folder').setInputFiles(lacking);
    await page
      .getByRole('alert')
      .getByText(/config\.json/)
      .waitFor(slow);
    await page.locator('#folder').setInputFiles(tokenizerFolder);
    await page.getByText('Ready.').waitFor(slow);
    await context.close();
  });
});

describe('a lost device', () => {
  it('is said with its remedy, takes the model along, and a new one is opened for the next', async () => {
    // A browser of its own: the GPU process is the whole browser's.
    const own = await launch();
    const { page } = await openPage(own);
    await page.goto(`${server.url}#/device?tab=chat`);
    await page.getByRole('button', { name: 'Load the embedded policy' }).click();
    await page.getByText('Ready.').waitFor(slow);
    const session = await own.newBrowserCDPSession();
    await session.send('Browser.crashGpuProcess').catch(() => {});
    await page
      .getByRole('alert')
      .getByText(/the device was lost \(.*\).*Load the model again/)
      .waitFor(slow);
    await page.getByText('No model is loaded.').waitFor();
    expect(await axeFindings(page)).toEqual([]);
    await page.goto(`${server.url}#/rollouts`);
    await page.locator('.spacer .row').first().click();
    await page.locator('.turns .tok').first().waitFor({ state: 'attached' });
    await page.goto(`${server.url}#/device?tab=chat`);
    await page.getByRole('button', { name: 'Load the embedded policy' }).click();
    await page.getByText('Ready.').waitFor(slow);
    await page.getByLabel('Most tokens').fill('32');
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.locator('[data-result=chat]').waitFor(slow);
    await own.close();
  });

  it('ends a training in the middle with its error, and keeps the steps that were made', async () => {
    const own = await launch();
    const { page } = await openPage(own);
    await page.goto(`${server.url}#/device?tab=train`);
    await page.getByRole('button', { name: 'Load the embedded policy' }).click();
    await page.getByText('Ready.').waitFor(slow);
    await page.getByLabel('Steps').fill('50');
    await page.getByLabel('Group size').fill('2');
    await page.getByLabel('Most tokens').fill('64');
    await page.getByRole('button', { name: 'Train', exact: true }).click();
    await page
      .getByRole('img', { name: /over [1-9]\d* steps/ })
      .first()
      .waitFor(slow);
    const session = await own.newBrowserCDPSession();
    await session.send('Browser.crashGpuProcess').catch(() => {});
    await page
      .getByRole('alert')
      .getByText(/the device was lost/)
      .waitFor(slow);
    await page.getByText('No model is loaded.').waitFor();
    await page.getByText(/Stopped after [1-9]\d* steps/).waitFor();
    await page.getByRole('link', { name: 'Open what there is in the Run view' }).click();
    await page
      .getByRole('img', { name: /over [1-9]\d* steps/ })
      .first()
      .waitFor();
    await own.close();
  });
});
