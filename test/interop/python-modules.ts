// Finds a Python that has a package, so that interop tests can say why they skip, and starts servers with it.
// Not an installer. Invariant: SHADERL_INTEROP_PYTHON, a list of interpreters with colons between, comes before python3.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { vi } from 'vitest';

const here = fileURLToPath(new URL('./python/', import.meta.url));

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

/** Starts a server of ./python on a free port and waits `timeout` ms until `path` answers; the caller kills `server`. */
export async function startServer(
  python: string,
  args: (port: string) => string[],
  path: string,
  timeout: number,
): Promise<{ server: ChildProcess; url: string }> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const server = spawn(python, args(String(port)), { cwd: here, stdio: 'ignore' });
  const alive = () =>
    fetch(`${url}${path}`).then(
      (reply) => reply.ok,
      () => false,
    );
  await vi.waitUntil(alive, { timeout, interval: 200 });
  return { server, url };
}
