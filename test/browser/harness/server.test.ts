// The server: what it refuses, the live link, a lost connection; and the page that has no server at all.
import { appendFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Browser } from 'playwright';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { openRunFolder } from '../../../src/inspect/run-folder-node.ts';
import { folderSource } from '../../../src/model/file-source-node.ts';
import { loadText } from '../../../src/model/text.ts';
import type { InspectServer } from '../../../workers/inspect-node.ts';
import { type FixtureRun, linesOf, tokenizerFolder, writeFixtureRun } from '../../support/inspect-run.ts';
import { launch, openPage, removeFolder, scratchFolder, serveRuns } from './open-page.ts';

const folder = scratchFolder();
const run = join(folder, 'live');
let fixture: FixtureRun;
let browser: Browser;
let server: InspectServer;

beforeAll(async () => {
  fixture = await writeFixtureRun(run, { steps: 2 });
  writeFileSync(join(folder, 'secret.jsonl'), 'a secret\n');
  symlinkSync(join(folder, 'secret.jsonl'), join(run, 'rollouts/step-999999.jsonl'));
  mkdirSync(join(run, 'checkpoints/step-000001'), { recursive: true });
  writeFileSync(join(run, 'checkpoints/step-000001/optimizer.safetensors'), 'not for the page');
  browser = await launch();
  server = await serveRuns([run]);
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
  removeFolder(folder);
});

/** Status and text; the Host header can be another one. */
function ask(
  path: string,
  host = `127.0.0.1:${server.port}`,
  method = 'GET',
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest({ host: '127.0.0.1', port: server.port, path, method, headers: { host } }, (answer) => {
      let text = '';
      answer.on('data', (chunk) => {
        text += String(chunk);
      });
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    sent.on('error', reject);
    sent.end();
  });
}
const own = () => new URL(server.url).pathname;
const filePath = (path: string) => `${own()}api/0/file?path=${encodeURIComponent(path)}`;

describe('the server', () => {
  it('answers only under the token of this start and only to loopback names', async () => {
    expect((await ask(own())).status).toBe(200);
    for (const path of ['/', '/api/runs', `/${'0'.repeat(32)}/api/runs`]) expect((await ask(path)).status).toBe(404);
    expect((await ask(own(), 'evil.example')).status).toBe(403);
    expect((await ask(own(), `localhost:${server.port}`)).status).toBe(200);
    const other = await serveRuns([run]);
    expect(new URL(other.url).pathname).not.toBe(own());
    await other.close();
  });

  it.each([
    '../secret.jsonl',
    'rollouts/../../secret.jsonl',
    '/etc/passwd',
    'rollouts/step-999999.jsonl',
    'run-config.json',
    'checkpoints/step-000001/optimizer.safetensors',
    'rollouts/%2e%2e/x.jsonl',
  ])('serves nothing for %s', async (path) => {
    const { status, text } = await ask(filePath(path));
    expect(status).toBe(404);
    expect(text).not.toContain('secret');
  });

  it('serves a byte range of a rollouts file, and no other method', async () => {
    const { status, text } = await ask(`${filePath('rollouts/step-000001.jsonl')}&offset=1&length=8`);
    expect([status, text]).toEqual([200, '"schema"']);
    const before = readFileSync(join(run, 'journal.jsonl'));
    for (const method of ['PUT', 'POST', 'DELETE']) {
      expect((await ask(filePath('journal.jsonl'), undefined, method)).status).toBe(404);
    }
    expect(readFileSync(join(run, 'journal.jsonl')).equals(before)).toBe(true);
  });

  it('refuses a live link without the token or from another origin', async () => {
    const state = (url: string, origin?: string) =>
      new Promise<string>((resolve) => {
        const socket = new WebSocket(url, origin === undefined ? {} : { origin });
        socket.on('open', () => {
          socket.close();
          resolve('open');
        });
        socket.on('error', () => resolve('refused'));
      });
    const base = `ws://127.0.0.1:${server.port}`;
    expect(await state(`${base}${own()}live`)).toBe('open');
    expect(await state(`${base}/live`)).toBe('refused');
    expect(await state(`${base}${own()}live`, 'http://evil.example')).toBe('refused');
  });

  it('says what is wrong with a folder that is no run', async () => {
    mkdirSync(join(folder, 'empty'));
    await expect(openRunFolder(join(folder, 'empty'))).rejects.toThrow(/found neither journal.jsonl nor rollouts/);
    await expect(openRunFolder(join(folder, 'nowhere'))).rejects.toThrow(/found nothing; wanted a run's folder/);
  });
});

describe('a running job', () => {
  it('shows a new step without a reload, then a lost connection, and goes on with what it has', async () => {
    const { page, context } = await openPage(browser);
    await page.goto(server.url);
    await page
      .getByRole('img', { name: /over 2 steps/ })
      .first()
      .waitFor();
    await page.evaluate(() => Object.assign(window, { sameDocument: true }));
    const step = await fixture.addStep();
    expect(step).toBe(3);
    await page
      .getByRole('img', { name: /over 3 steps/ })
      .first()
      .waitFor();
    await page.getByRole('link', { name: 'Rollouts' }).click();
    await page.getByText('60 of 60').waitFor();
    expect(await page.evaluate(() => 'sameDocument' in window)).toBe(true);

    await server.close();
    await page.getByText('connection lost').waitFor();
    await page.getByRole('link', { name: 'Run', exact: true }).click();
    await page
      .getByRole('img', { name: /over 3 steps/ })
      .first()
      .waitFor();
    server = await serveRuns([run]);
    await context.close();
  });

  it('keeps the steps before a journal line that was altered, and names the line', async () => {
    const altered = join(folder, 'altered');
    await writeFixtureRun(altered, { steps: 2 });
    const file = join(altered, 'journal.jsonl');
    const lines = readFileSync(file, 'utf8').split('\n');
    const last = lines.findLastIndex((line) => line.includes('"kind":"step"'));
    lines[last] = lines[last]!.replace('"step":2', '"step":9');
    writeFileSync(file, lines.join('\n'));
    appendFileSync(file, '');
    const other = await serveRuns([altered]);
    const { page, context } = await openPage(browser);
    await page.goto(other.url);
    await page.getByText(/journal.jsonl line \d+: found content with sha256/).waitFor();
    await page
      .getByRole('img', { name: /over 1 steps/ })
      .first()
      .waitFor();
    await context.close();
    await other.close();
  });
});

describe('a page without a server', () => {
  it('shows a dropped rollouts file, with a character that is split over two tokens', async () => {
    const text = await loadText(folderSource(tokenizerFolder));
    const idOf = (byte: number) => {
      for (let id = 0; id < text.vocabularySize; id++) {
        const bytes = text.missingIds.includes(id) ? [] : [...text.bytesOf(id)];
        if (bytes.length === 1 && bytes[0] === byte) return id;
      }
      throw new Error(`looking for byte ${byte}: found no token of it; wanted one. Choose another character.`);
    };
    const episodes = await fixture.episodes(2);
    const first = episodes[0]!.turns[0]!.span[0] + 6;
    episodes[0]!.ids.splice(first, 2, idOf(0xc3), idOf(0xa4));
    const page = fileURLToPath(new URL('../../../dist/harness/index.html', import.meta.url));
    expect(existsSync(page)).toBe(true);
    const opened = await openPage(browser);
    await opened.page.goto(pathToFileURL(page).href);
    await opened.page.getByRole('heading', { name: 'Nothing is open' }).waitFor();
    await opened.page.evaluate((content) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([content], 'step-000002.jsonl'));
      window.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
    }, linesOf(episodes));
    await opened.page.getByText('4 of 4 rollouts').waitFor();
    await opened.page.locator('.spacer .row').first().click();
    const open = opened.page.locator(`.tok[data-i="${first}"]`);
    await open.waitFor();
    expect(await open.textContent()).toBe('⟨C3⟩');
    const close = opened.page.locator(`.tok[data-i="${first + 1}"]`);
    expect(await close.textContent()).toBe('ä');
    await close.click();
    await opened.page.getByText('completes ä, begun in an earlier token').waitFor();
    await opened.page.getByText(/text by the embedded policy's tokenizer/).waitFor();
    expect(opened.requests.filter((url) => !/^(file|data|blob):/.test(url))).toEqual([]);
    expect(opened.errors).toEqual([]);
    await opened.context.close();
  });
});
