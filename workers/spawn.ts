// Starts a Node worker whose module calls `serve`, and gives a typed proxy of its service.
// Not a pool, no restart: a worker that died stays dead. Invariant: no call outlives its worker: each is rejected at
// once when the worker fails, exits or is stopped, because comlink alone would leave it pending for ever.
import { Worker } from 'node:worker_threads';
import { wrap } from 'comlink';
import { EnvError, errorFromPlain, type ShaderlError } from '../src/lib/errors.ts';
import { nodeEndpoint } from './node-endpoint.ts';
import type { Envelope, ParentNotice, WorkerNotice } from './serve.ts';

/** An error class of one boundary, e.g. EnvError for environments and EvaluationError for evaluators. */
export type ErrorClass = new (code: string, message: string, options?: { cause?: unknown }) => ShaderlError;

export interface SpawnOptions<T extends object> {
  /** Names the worker in errors and as its thread's name. */
  name: string;
  /** The worker's module, a `.ts` or `.js` file that calls `serve`. */
  module: URL;
  /** The methods of the service; all of them return promises. */
  methods: readonly (keyof T & string)[];
  /** Handed to the builder of `serve`; plain data. */
  data?: unknown;
  /** Class of the errors that the loss of the worker raises; EnvError by default. */
  errorClass?: ErrorClass;
  /** Milliseconds until the service must be ready; 30,000 by default. */
  readyDeadlineMs?: number;
  /** Milliseconds that one call may take; then the worker counts as lost and is ended. No limit by default. */
  callDeadlineMs?: number;
}

export interface SpawnedWorker<T extends object> {
  service: T;
  /** Ends the worker: lets it dispose, then terminates it. Pending calls are rejected; safe to repeat. */
  stop(): Promise<void>;
  /** Ends the thread in the middle of whatever it does, as a crash would. */
  kill(): Promise<void>;
}

/** Milliseconds that a stopped worker gets to dispose before it is terminated. */
const DISPOSE_DEADLINE_MS = 5_000;

/**
 * Starts a worker and waits until its service is ready. Rejects with `errorClass` (`worker-start`) on an early exit or
 * a missed deadline, and with the worker's own error, class and code kept, when its builder threw.
 */
export async function spawnWorker<T extends object>(options: SpawnOptions<T>): Promise<SpawnedWorker<T>> {
  const { name, errorClass = EnvError, readyDeadlineMs = 30_000, callDeadlineMs } = options;
  const worker = new Worker(new URL('./boot.mjs', import.meta.url), {
    name,
    workerData: { module: options.module.href, data: options.data },
    // The parent's own --import would load tsx a second time, and fails where the parent's loader is another one.
    execArgv: [],
  });

  const pending = new Set<(error: Error) => void>();
  let lost: Error | null = null;
  const lose = (code: string, found: string, cause?: unknown): void => {
    if (lost) return;
    lost = new errorClass(
      code,
      `calling worker ${name}: ${found}; a live worker is wanted. Start a new one and redo the work in hand.`,
      cause === undefined ? undefined : { cause },
    );
    for (const reject of pending) reject(lost);
    pending.clear();
  };
  const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  worker.on('error', (error) => lose('worker-failed', `it failed with "${error.message}"`, error));
  worker.on('messageerror', (error) => lose('worker-failed', `a message could not be read (${error.message})`, error));
  worker.on('exit', (exitCode) => lose('worker-exited', `it exited with code ${exitCode}`));

  /** The outcome of `work`, or the loss of the worker, whichever comes first. */
  const guarded = <R>(work: Promise<R>): Promise<R> => {
    if (lost) {
      work.catch(() => {});
      return Promise.reject(lost);
    }
    return new Promise<R>((resolve, reject) => {
      pending.add(reject);
      work.then(resolve, reject).finally(() => pending.delete(reject));
    });
  };
  const kill = async (): Promise<void> => {
    await worker.terminate();
  };
  const stop = async (): Promise<void> => {
    lose('worker-stopped', 'it was stopped');
    worker.postMessage({ notice: 'stop' } satisfies ParentNotice);
    const timer = setTimeout(() => void worker.terminate(), DISPOSE_DEADLINE_MS);
    await exited;
    clearTimeout(timer);
  };

  await guarded(readiness(worker, name, errorClass, readyDeadlineMs)).catch(async (error: unknown) => {
    await kill();
    throw error;
  });

  const remote = wrap<Record<string, (...args: unknown[]) => Promise<Envelope>>>(nodeEndpoint(worker));
  const invoke = async (method: string, args: unknown[]): Promise<unknown> => {
    if (lost) throw lost;
    let timer: NodeJS.Timeout | undefined;
    if (callDeadlineMs !== undefined) {
      timer = setTimeout(() => {
        lose('worker-timeout', `${method} gave no answer within ${callDeadlineMs} ms`);
        void kill();
      }, callDeadlineMs);
    }
    const reply = (remote[method] as (...args: unknown[]) => Promise<Envelope>)(...args);
    try {
      const envelope = await guarded(reply.catch((error: unknown) => unsendable(name, method, errorClass, error)));
      if (envelope.ok) return envelope.value;
      throw errorFromPlain(envelope.error);
    } finally {
      clearTimeout(timer);
    }
  };
  const service = Object.fromEntries(
    options.methods.map((method) => [method, (...args: unknown[]) => invoke(method, args)]),
  ) as T;
  return { service, stop, kill };
}

/** Resolves on the worker's `ready`, rejects on its `failed` or at the deadline. */
function readiness(worker: Worker, name: string, errorClass: ErrorClass, deadlineMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (outcome: () => void): void => {
      clearTimeout(timer);
      worker.off('message', listen);
      worker.off('exit', ended);
      outcome();
    };
    const listen = (message: Partial<WorkerNotice>): void => {
      if (message.notice === 'ready') settle(resolve);
      if (message.notice === 'failed' && 'error' in message && message.error) {
        const error = errorFromPlain(message.error);
        settle(() => reject(error));
      }
    };
    // The loss itself is reported by the guard around this promise; here only the timer and listeners go.
    const ended = (): void => settle(() => {});
    const timer = setTimeout(
      () =>
        settle(() =>
          reject(
            new errorClass(
              'worker-start',
              `starting worker ${name}: it was not ready within ${deadlineMs} ms; ` +
                'its module must call serve. Look at its output, or allow more time.',
            ),
          ),
        ),
      deadlineMs,
    );
    worker.on('message', listen);
    worker.on('exit', ended);
  });
}

/** Arguments or results that cannot be cloned: comlink's own failure, not the service's. */
function unsendable(name: string, method: string, errorClass: ErrorClass, cause: unknown): never {
  throw new errorClass(
    'worker-message',
    `calling ${method} of worker ${name}: ${cause instanceof Error ? cause.message : String(cause)}; ` +
      'arguments and results must be plain data. Pass no functions or class instances.',
    { cause },
  );
}
