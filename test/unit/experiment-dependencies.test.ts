import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { requireInstalled } from '../../src/experiment/dependencies-node.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'shaderl-installed-'));
  const packages = {
    '': { version: '0.1.0' },
    'node_modules/a': { version: '1.0.0' },
    'node_modules/a/node_modules/b': { version: '2.0.0' },
    'node_modules/native': { version: '3.0.0', optional: true },
    'node_modules/lint': { version: '4.0.0', dev: true },
  };
  writeFileSync(join(root, 'package-lock.json'), JSON.stringify({ lockfileVersion: 3, packages }));
  install('node_modules/a', '1.0.0');
  install('node_modules/a/node_modules/b', '2.0.0');
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function install(path: string, version: string): void {
  mkdirSync(join(root, path), { recursive: true });
  writeFileSync(join(root, path, 'package.json'), JSON.stringify({ version }));
}

test('packages of the lock are accepted, without those for development and optional ones of another platform', () => {
  requireInstalled(root);
});

test.each([
  ['a package of another version', 'node_modules/a/node_modules/b', '2.0.1', 'version 2.0.1', '2.0.0'],
  ['an optional package of another version', 'node_modules/native', '3.1.0', 'version 3.1.0', '3.0.0'],
])('%s is refused with its folder and both versions', (_name, path, version, found, wanted) => {
  install(path, version);
  expect(() => requireInstalled(root)).toThrow(
    `checking ${join(root, path)} against ${join(root, 'package-lock.json')}: found ${found}; wanted version ${wanted}, ` +
      `as the lock that plans freeze says. Run \`npm ci\` in ${root}.`,
  );
});

test('a missing package is refused', () => {
  rmSync(join(root, 'node_modules/a/node_modules'), { recursive: true });
  expect(() => requireInstalled(root)).toThrow(/found nothing there; wanted version 2\.0\.0/);
});

test('this program has what its own lock says', () => {
  requireInstalled(fileURLToPath(new URL('../../', import.meta.url)));
});
