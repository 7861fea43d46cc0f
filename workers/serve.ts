// The worker's side of a service: exposes an object's methods through comlink and tells the parent that it is ready.
// Not specific to one service. Invariant: no error crosses as comlink would send it (class and code lost): each call
// answers with an envelope, and a failed start is posted as plain data too.
import { parentPort, workerData } from 'node:worker_threads';
import { expose } from 'comlink';
import { errorToPlain, type PlainError } from '../src/lib/errors.ts';
import { nodeEndpoint } from './node-endpoint.ts';

/** What a call answers: the value, or the error as plain data. */
export type Envelope = { ok: true; value: unknown } | { ok: false; error: PlainError };

/** Messages beside comlink's own; comlink ignores them, because they carry no id and no type of its own. */
export type WorkerNotice = { notice: 'ready' } | { notice: 'failed'; error: PlainError };
export type ParentNotice = { notice: 'stop' };

export interface Served<T extends object> {
  service: T;
  /** Runs before the worker ends by `stop()`, e.g. to destroy a device. */
  dispose?: () => Promise<void> | void;
}

/**
 * Builds the service from the spawner's `data` and exposes its methods. To be called once, at the top of a worker's
 * module, which must be started by `spawnWorker`.
 */
export async function serve<T extends object>(build: (data: unknown) => Served<T> | Promise<Served<T>>): Promise<void> {
  const port = parentPort;
  if (!port) throw new Error('serving: this module runs outside a worker thread. Start it with spawnWorker.');
  const notify = (notice: WorkerNotice): void => port.postMessage(notice);
  try {
    const { service, dispose } = await build((workerData as { data: unknown }).data);
    expose(envelop(service), nodeEndpoint(port));
    port.on('message', (message: Partial<ParentNotice>) => {
      if (message.notice !== 'stop') return;
      // Closing the port lets the thread end by itself, after whatever dispose still has to do.
      void Promise.resolve(dispose?.()).finally(() => port.close());
    });
    notify({ notice: 'ready' });
  } catch (error) {
    notify({ notice: 'failed', error: errorToPlain(error) });
    port.close();
  }
}

function envelop(service: object): Record<string, (...args: unknown[]) => Promise<Envelope>> {
  const exposed: Record<string, (...args: unknown[]) => Promise<Envelope>> = {};
  for (const [name, method] of Object.entries(service)) {
    if (typeof method !== 'function') continue;
    exposed[name] = async (...args) => {
      try {
        return { ok: true, value: await method.apply(service, args) };
      } catch (error) {
        return { ok: false, error: errorToPlain(error) };
      }
    };
  }
  return exposed;
}
