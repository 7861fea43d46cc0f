// Starts the German environment in its own worker and gives its port.
// Not the environment itself. Invariant: the loss of the worker raises EnvError on every call, at once and for good.
import type { EnvironmentPort } from '../src/environments/port.ts';
import { type SpawnedWorker, spawnWorker } from './spawn.ts';

const METHODS = ['open', 'call', 'verify', 'log', 'close'] as const satisfies (keyof EnvironmentPort)[];

export interface SpawnedEnvironment extends Omit<SpawnedWorker<EnvironmentPort>, 'service'> {
  port: EnvironmentPort;
}

/** The German environment behind comlink. The caller must `stop()` it; rejects with EnvError if it does not start. */
export async function spawnGermanEnvironment(): Promise<SpawnedEnvironment> {
  const { service, stop, kill } = await spawnWorker<EnvironmentPort>({
    name: 'german-environment',
    module: new URL('./env.worker.ts', import.meta.url),
    methods: METHODS,
    // A tool call takes microseconds; two minutes without an answer mean that the thread hangs.
    callDeadlineMs: 120_000,
  });
  return { port: service, stop, kill };
}
