// The built page of the inspector: builds it with Vite when its sources are newer than what was built.
// Not a development server. Invariant: the page that is served was built from the sources that are there; where they are
// not (a bundle ships the page alone) or Vite is missing, the last build is used.
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PlanError } from '../src/lib/errors.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const pagePath = 'dist/harness/index.html';
const configPath = 'browser-harness/vite.config.ts';
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

async function isStale(folder: string): Promise<boolean> {
  // Files of a bundle have the times of its making, which say nothing of the page.
  if (!(await stat(join(folder, configPath)).catch(() => null))) return false;
  const built = await stat(join(folder, pagePath)).catch(() => null);
  if (!built) return true;
  const times = await Promise.all(sources.map((name) => newest(join(folder, name)).catch(() => 0)));
  return Math.max(...times) > built.mtimeMs;
}

/**
 * The page's text. `onBuild` is called before it is built; `folder` is the program's own. Throws PlanError `no-page`
 * where there is none and none can be built.
 */
export async function inspectorPage(onBuild: () => void, folder: string = root): Promise<string> {
  if (await isStale(folder)) {
    const vite = await import('vite').catch(() => null);
    if (vite) {
      onBuild();
      await vite.build({ configFile: join(folder, configPath), logLevel: 'error' });
    }
  }
  const page = join(folder, pagePath);
  try {
    return await readFile(page, 'utf8');
  } catch (cause) {
    const message =
      `opening the inspector's page: found neither ${page} nor what it is built from (${configPath} and the package ` +
      'vite); wanted one of them. Run `npm ci` in a checkout, or unpack the bundle anew.';
    throw new PlanError('no-page', message, { cause });
  }
}
