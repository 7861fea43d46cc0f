// The golden files are the oracle: their bytes are those of the checksum list, and of their source where that lies beside.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const folder = fileURLToPath(new URL('../golden/', import.meta.url));
const origin = fileURLToPath(new URL('../../../shared/golden/', import.meta.url));
const listed = readFileSync(`${folder}SHA256SUMS`, 'utf8')
  .trim()
  .split('\n')
  .map(
    (line) =>
      [
        line.slice(0, 64),
        line
          .slice(64)
          .trim()
          .replace(/^\*?\.\//, ''),
      ] as const,
  );

test('every golden file has the listed checksum, and none is unlisted', () => {
  for (const [sha256, name] of listed) {
    expect(
      createHash('sha256')
        .update(readFileSync(folder + name))
        .digest('hex'),
      name,
    ).toBe(sha256);
  }
  const present = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== 'SHA256SUMS')
    .map((entry) => `${entry.parentPath}/${entry.name}`.slice(folder.length).replace(/^\//, ''));
  expect(present.sort()).toEqual(listed.map(([, name]) => name).sort());
});

test('the golden files equal their source byte for byte', (context) => {
  if (!existsSync(origin)) context.skip('the source of the goldens does not lie beside this checkout');
  for (const [, name] of listed)
    expect(readFileSync(folder + name).equals(readFileSync(origin + name)), name).toBe(true);
});
