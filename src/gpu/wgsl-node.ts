// Shader text in Node: read from the shaders folder. The browser's twin is wgsl-web.ts.
import { readFileSync } from 'node:fs';

/** The text of shaders/<name>. */
export function loadWgsl(name: string): string {
  return readFileSync(new URL(`../../shaders/${name}`, import.meta.url), 'utf8');
}
