// Shader text in a browser: bundled by Vite. Node's twin is wgsl-node.ts.
import { KernelError } from '../lib/errors.ts';

const sources: Record<string, string> = import.meta.glob('../../shaders/*.wgsl', {
  query: '?raw',
  import: 'default',
  eager: true,
});

/** The text of shaders/<name>. */
export function loadWgsl(name: string): string {
  const text = sources[`../../shaders/${name}`];
  if (text === undefined) {
    throw new KernelError('no-shader', `loading shader ${name}: it is not in the bundle; rebuild the page.`);
  }
  return text;
}
