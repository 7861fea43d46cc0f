// Finds a Python that has a package, so that interop tests can say why they skip.
// Not an installer. Invariant: SHADERL_INTEROP_PYTHON, a list of interpreters with colons between, comes before python3.
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:net';

/** An interpreter in which all of these modules can be imported, or null. */
export function pythonWith(...modules: string[]): string | null {
  const named = (process.env['SHADERL_INTEROP_PYTHON'] ?? '').split(':').filter((path) => path !== '');
  for (const python of [...named, 'python3']) {
    const { status } = spawnSync(python, ['-c', modules.map((name) => `import ${name}`).join('\n')], {
      timeout: 60_000,
    });
    if (status === 0) return python;
  }
  return null;
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
