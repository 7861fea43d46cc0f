// Whether the dependencies that are installed are those of the lock that a plan freezes: by their versions.
// Not a hash of their files, which nothing pins. Invariant: the first package that differs is named with both versions.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { PlanError } from '../lib/errors.ts';

const lockFile = z.object({
  packages: z.record(
    z.string(),
    z.object({
      version: z.string().optional(),
      dev: z.boolean().optional(),
      optional: z.boolean().optional(),
      devOptional: z.boolean().optional(),
      link: z.boolean().optional(),
    }),
  ),
});

function versionAt(folder: string): string | null {
  try {
    return String((JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version?: unknown }).version);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/**
 * Refuses a program in `root` whose installed packages are not those of its package-lock.json. Packages for development
 * alone are not looked at, and optional ones only where they are there. Throws PlanError `other-dependencies`.
 */
export function requireInstalled(root: string): void {
  const lock = join(root, 'package-lock.json');
  const { packages } = lockFile.parse(JSON.parse(readFileSync(lock, 'utf8')));
  for (const [path, { version, dev, devOptional, optional, link }] of Object.entries(packages)) {
    if (path === '' || dev || link || version === undefined) continue;
    const found = versionAt(join(root, path));
    if (found === version || (found === null && (optional || devOptional))) continue;
    throw new PlanError(
      'other-dependencies',
      `checking ${join(root, path)} against ${lock}: found ${found === null ? 'nothing there' : `version ${found}`}; ` +
        `wanted version ${version}, as the lock that plans freeze says. Run \`npm ci\` in ${root}.`,
    );
  }
}
