// A service that this program starts itself: one child process group, its logs, its health, its end.
// Not a supervisor: a service that died stays dead. Invariant: only a process group that was started here is ever
// signalled; a child of an earlier process of ours is recognised by host, pid and start time, never by its name.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { sleep } from '../../src/environments/service/deadlines.ts';
import { nodeHttp } from '../../src/environments/service/http-node.ts';
import { processStart } from '../../src/experiment/lock-node.ts';
import { EnvError } from '../../src/lib/errors.ts';

export interface OwnedServiceOptions {
  /** Absolute path of the executable, then its arguments. */
  argv: readonly string[];
  cwd: string;
  /** Where it will listen. */
  url: string;
  healthPath: string;
  healthDeadlineMs: number;
  /** Between SIGTERM and SIGKILL. */
  stopDeadlineMs: number;
  /** Folder of its logs and of the record of the child. */
  folder: string;
  /** `<name>.out.log` and `<name>.err.log`. */
  name: string;
}

export interface OwnedService {
  url: string;
  pid: number;
  /** How it ended, if it ended by itself. */
  ended(): string | null;
  /** Ends the process group: SIGTERM, then SIGKILL. Safe to repeat. */
  stop(): Promise<void>;
}

interface ChildRecord {
  host: string;
  pid: number;
  started: string | null;
  argv: readonly string[];
}

const RECORD = 'child.json';
const POLL_MS = 50;
/** For a killed group to be gone; a zombie that nobody reaps is not waited for. */
const KILLED_MS = 2_000;

function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-pid, signal);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ESRCH' || code === 'EPERM') return false;
    throw error;
  }
}

async function endGroup(pid: number, deadlineMs: number): Promise<void> {
  for (const [signal, ms] of [
    ['SIGTERM', deadlineMs],
    ['SIGKILL', KILLED_MS],
  ] as const) {
    if (!signalGroup(pid, signal)) return;
    const until = performance.now() + ms;
    while (performance.now() < until) {
      await sleep(POLL_MS);
      if (!signalGroup(pid, 0)) return;
    }
  }
}

/** Ends the child that an earlier process of ours left behind when it was killed. Gives its pid, or null. */
async function endLeftover(folder: string, deadlineMs: number): Promise<number | null> {
  const file = join(folder, RECORD);
  if (!existsSync(file)) return null;
  let record: ChildRecord | null = null;
  try {
    record = JSON.parse(readFileSync(file, 'utf8')) as ChildRecord;
  } catch {
    // Torn by a kill: the port tells whether something still listens.
  }
  rmSync(file, { force: true });
  if (record === null || record.host !== hostname() || record.started === null) return null;
  if (processStart(record.pid) !== record.started) return null;
  await endGroup(record.pid, deadlineMs);
  return record.pid;
}

function listens(url: string): Promise<boolean> {
  const { hostname: host, port, protocol } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect({
      host: host.replace(/^\[|\]$/g, ''),
      port: Number(port || (protocol === 'https:' ? 443 : 80)),
    });
    const settle = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(2_000, () => settle(false));
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
}

/** A port of the loopback address that is free now. */
export function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

function lastLines(file: string): string {
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n').slice(-3);
  const text = lines.join(' | ').slice(-300);
  return text === '' ? '' : `; the end of ${file}: ${text}`;
}

async function isHealthy(url: string, path: string): Promise<boolean> {
  const request = { method: 'GET' as const, url: `${url.replace(/\/$/, '')}${path}`, headers: {}, body: null };
  try {
    return (await nodeHttp('asking for health', request, { connectMs: 2_000, replyMs: 5_000 })).status === 200;
  } catch (error) {
    if (error instanceof EnvError) return false;
    throw error;
  }
}

/**
 * Starts a service and waits until it is healthy. Throws EnvError: `service-port` where something listens already,
 * `service-start`, `service-exited`, `service-unhealthy`; whatever was started is ended then.
 */
export async function startOwnedService(options: OwnedServiceOptions): Promise<OwnedService> {
  const { argv, cwd, url, folder, name, healthPath, healthDeadlineMs, stopDeadlineMs } = options;
  const doing = `starting the service ${argv.join(' ')}`;
  mkdirSync(folder, { recursive: true });
  await endLeftover(folder, stopDeadlineMs);
  if (await listens(url)) {
    throw new EnvError(
      'service-port',
      `${doing}: found something that listens at ${url} already; wanted a free address, because only a service that ` +
        'is started here is ever stopped. End it, or give another address.',
    );
  }
  const files = [join(folder, `${name}.out.log`), join(folder, `${name}.err.log`)] as const;
  const [out, err] = [openSync(files[0], 'a'), openSync(files[1], 'a')];
  let failure: Error | null = null;
  let child: ChildProcess;
  try {
    // A group of its own: Ctrl-C reaches this program alone, which still needs the service for the step in hand.
    child = spawn(argv[0]!, argv.slice(1), { cwd, detached: true, stdio: ['ignore', out, err] });
  } finally {
    closeSync(out);
    closeSync(err);
  }
  child.once('error', (error) => {
    failure = error;
  });
  const { pid } = child;
  let how: string | null = null;
  child.once('exit', (code, signal) => {
    how = signal ?? `exit code ${code}`;
  });
  if (pid === undefined) {
    await sleep(0);
    throw new EnvError(
      'service-start',
      `${doing} in ${cwd}: found ${(failure as Error | null)?.message ?? 'no process'}; wanted a process. Correct ` +
        'service.command or service.cwd.',
    );
  }
  const record: ChildRecord = { host: hostname(), pid, started: processStart(pid), argv };
  writeFileSync(join(folder, RECORD), `${JSON.stringify(record)}\n`);
  const onExit = () => {
    if (how === null) signalGroup(pid, 'SIGKILL');
  };
  process.once('exit', onExit);
  let stopping: Promise<void> | null = null;
  const stop = () => {
    stopping ??= (async () => {
      await endGroup(pid, stopDeadlineMs);
      process.off('exit', onExit);
      rmSync(join(folder, RECORD), { force: true });
    })();
    return stopping;
  };
  const until = performance.now() + healthDeadlineMs;
  try {
    while (!(await isHealthy(url, healthPath))) {
      const found =
        how !== null ? `it ended with ${how}` : performance.now() > until ? 'no answer with status 200' : null;
      if (found !== null) {
        throw new EnvError(
          how !== null ? 'service-exited' : 'service-unhealthy',
          `${doing}: found ${found}${lastLines(files[1])}; wanted health at ${url}${healthPath} within ` +
            `${healthDeadlineMs / 1000} s. Read its logs in ${folder}; raise service.healthDeadlineSeconds if it is slow.`,
        );
      }
      await sleep(POLL_MS);
    }
    // Something else may have taken the port while the child failed to.
    if (how !== null)
      throw new EnvError(
        'service-exited',
        `${doing}: found that it ended with ${how}${lastLines(files[1])}; wanted it to serve ${url}, where something else answers. End that, or give another address.`,
      );
  } catch (error) {
    await stop();
    throw error;
  }
  return { url, pid, ended: () => how, stop };
}
