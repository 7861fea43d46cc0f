// The built page of the inspector: builds it with Vite when its sources are newer than what was built.
// Not a development server. Invariant: the page that is served was built from the sources that are there, or Vite is
// missing and the last build is used.
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PlanError } from '../src/lib/errors.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const page = join(root, 'dist/harness/index.html');
const sources = ['browser-harness', 'src', 'shaders', 'fixtures/embedded-policy'];

/** Folder of the policy that comes with the program. */
export const embeddedPolicyFolder: string = join(root, 'fixtures/embedded-policy');

async function newest(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true });
  const times = entries.map(async (entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? newest(path) : (await stat(path)).mtimeMs;
  });
  return Math.max(0, ...(await Promise.all(times)));
}

async function isStale(): Promise<boolean> {
  const built = await stat(page).catch(() => null);
  if (!built) return true;
  const times = await Promise.all(sources.map((folder) => newest(join(root, folder)).catch(() => 0)));
  return Math.max(...times) > built.mtimeMs;
}

/** The page's text. `onBuild` is called before it is built. Throws PlanError `no-page` where that cannot be done. */
export async function inspectorPage(onBuild: () => void): Promise<string> {
  if (await isStale()) {
    const vite = await import('vite').catch(() => null);
    if (vite) {
      onBuild();
      await vite.build({ configFile: join(root, 'browser-harness/vite.config.ts'), logLevel: 'error' });
    }
  }
  try {
    return await readFile(page, 'utf8');
  } catch (cause) {
    const message =
      `building the inspector's page: found neither ${page} nor the package vite; wanted one of them. ` +
      'Run `npm ci`.';
    throw new PlanError('no-page', message, { cause });
  }
}
