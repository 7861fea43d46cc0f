// The inspector's page in a folder that was shipped: served as it is, or a clear error where it is not.
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { inspectorPage } from '../../workers/inspect-page-node.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'shaderl-page-'));
  mkdirSync(join(folder, 'src'));
  writeFileSync(join(folder, 'src/train.ts'), '');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const neverBuilt = () => {
  throw new Error('building the page: found a call; wanted none. Serve the page that is there.');
};

describe('the page of a folder without the sources of the page', () => {
  it('is the one that was shipped, however old', async () => {
    mkdirSync(join(folder, 'dist/harness'), { recursive: true });
    writeFileSync(join(folder, 'dist/harness/index.html'), '<title>shipped</title>');
    utimesSync(join(folder, 'dist/harness/index.html'), 0, 0);
    expect(await inspectorPage(neverBuilt, folder)).toBe('<title>shipped</title>');
  });

  it('is an error with the remedy where none was shipped', async () => {
    const failed = await inspectorPage(neverBuilt, folder).catch((error: Error) => error);
    expect(String(failed).replaceAll(folder, '<folder>')).toMatchInlineSnapshot(
      `"PlanError: opening the inspector's page: found neither <folder>/dist/harness/index.html nor what it is built from (browser-harness/vite.config.ts and the package vite); wanted one of them. Run \`npm ci\` in a checkout, or unpack the bundle anew."`,
    );
  });
});
