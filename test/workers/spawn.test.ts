// Workers: typed errors over the wire, and no call that outlives its worker, however the worker ends.
import { describe, expect, it } from 'vitest';
import { AuditError, DeviceError, EnvError, EvaluationError } from '../../src/lib/errors.ts';
import { type SpawnedWorker, type SpawnOptions, spawnWorker } from '../../workers/spawn.ts';
import type { FaultyData, FaultyService } from './faulty.worker.ts';

const options = (data: FaultyData = {}): SpawnOptions<FaultyService> => ({
  name: 'faulty',
  module: new URL('./faulty.worker.ts', import.meta.url),
  methods: ['echo', 'fail', 'wait', 'spin', 'exit', 'throwLater', 'unsendable'],
  data,
});

async function withWorker(
  work: (worker: SpawnedWorker<FaultyService>) => Promise<void>,
  changes: Partial<SpawnOptions<FaultyService>> = {},
): Promise<void> {
  const worker = await spawnWorker<FaultyService>({ ...options(), ...changes });
  try {
    await work(worker);
  } finally {
    await worker.kill();
  }
}

const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => ({ resolved: value }),
    (error: unknown) => error,
  );

/** The failure of a call and the milliseconds until it came. */
async function timedFailure(work: Promise<unknown>, trigger: () => unknown): Promise<{ error: unknown; ms: number }> {
  const start = performance.now();
  trigger();
  const error = await failure(work);
  return { error, ms: performance.now() - start };
}

describe('a worker that lives', () => {
  it('answers calls, also many at once and out of order', () =>
    withWorker(async ({ service }) => {
      expect(await service.echo({ a: [1, null, 'ü'] })).toEqual({ a: [1, null, 'ü'] });
      const order: string[] = [];
      await Promise.all([
        service.wait(200).then(() => order.push('slow')),
        service.echo(1).then(() => order.push('fast')),
      ]);
      expect(order).toEqual(['fast', 'slow']);
      const numbers = Array.from({ length: 200 }, (_, i) => i);
      expect(await Promise.all(numbers.map((n) => service.echo(n)))).toEqual(numbers);
    }));

  it('hands over errors with class, code, message and cause', () =>
    withWorker(async ({ service }) => {
      const device = await failure(service.fail('device'));
      expect(device).toBeInstanceOf(DeviceError);
      expect(device).toMatchObject({ code: 'lost', message: 'the device is gone', exitCode: 3 });
      const audit = await failure(service.fail('audit'));
      expect(audit).toBeInstanceOf(AuditError);
      expect((audit as Error).cause).toBeInstanceOf(EvaluationError);
      expect((audit as Error).cause).toMatchObject({ code: 'inner', message: 'because' });
      const plain = await failure(service.fail('plain'));
      expect(plain).toMatchObject({ name: 'TypeError', message: 'no method of that name' });
      expect(await service.echo('alive')).toBe('alive');
    }));

  it('refuses arguments and results that are no plain data, and lives on', () =>
    withWorker(async ({ service }) => {
      for (const work of [service.echo(() => 1), service.unsendable()]) {
        const error = await failure(work);
        expect(error).toBeInstanceOf(EnvError);
        expect(error).toMatchObject({ code: 'worker-message' });
      }
      expect(await service.echo('alive')).toBe('alive');
    }));
});

describe('a worker that dies', () => {
  it('rejects all pending calls at once when it is killed, and every later call', () =>
    withWorker(async ({ service, kill }) => {
      const others = [failure(service.wait(60_000)), failure(service.wait(60_000))];
      const { error, ms } = await timedFailure(service.wait(60_000), kill);
      expect(error).toBeInstanceOf(EnvError);
      expect(error).toMatchObject({ code: 'worker-exited' });
      expect(ms).toBeLessThan(5_000);
      for (const other of others) expect(await other).toBe(error);
      expect(await failure(service.echo(1))).toBe(error);
    }));

  it('rejects calls when it is killed while its thread is blocked', () =>
    withWorker(async ({ service, kill }) => {
      const { error, ms } = await timedFailure(service.spin(), kill);
      expect(error).toMatchObject({ code: 'worker-exited' });
      expect(ms).toBeLessThan(5_000);
    }));

  it('rejects calls when it exits by itself', () =>
    withWorker(async ({ service }) => {
      const error = await failure(service.exit());
      expect(error).toBeInstanceOf(EnvError);
      expect((error as Error).message).toMatchInlineSnapshot(
        `"calling worker faulty: it exited with code 3; a live worker is wanted. Start a new one and redo the work in hand."`,
      );
    }));

  it('rejects calls with the cause when it throws outside of a call', () =>
    withWorker(async ({ service }) => {
      const error = await failure(service.throwLater());
      expect(error).toMatchObject({ code: 'worker-failed' });
      expect(((error as Error).cause as Error).message).toBe('unforeseen');
    }));

  it('counts as lost when a call passes its deadline', () =>
    withWorker(
      async ({ service }) => {
        const error = await failure(service.spin());
        expect(error).toMatchObject({ code: 'worker-timeout' });
        expect(await failure(service.echo(1))).toBe(error);
      },
      { callDeadlineMs: 300 },
    ));

  it('raises the error class of its boundary', () =>
    withWorker(
      async ({ service, kill }) => {
        const { error } = await timedFailure(service.wait(60_000), kill);
        expect(error).toBeInstanceOf(EvaluationError);
      },
      { errorClass: EvaluationError },
    ));
});

describe('stop', () => {
  it('lets the worker dispose, rejects pending calls, and may be repeated', async () => {
    const disposals = new SharedArrayBuffer(4);
    const { service, stop } = await spawnWorker<FaultyService>(options({ disposals }));
    const pending = failure(service.wait(300));
    await stop();
    await stop();
    expect(await pending).toMatchObject({ code: 'worker-stopped' });
    expect(await failure(service.echo(1))).toMatchObject({ code: 'worker-stopped' });
    expect(new Int32Array(disposals)[0]).toBe(1);
  });

  it('ends a worker whose thread is blocked', async () => {
    const { service, stop } = await spawnWorker<FaultyService>(options());
    const pending = failure(service.spin());
    await stop();
    expect(await pending).toMatchObject({ code: 'worker-stopped' });
  });
});

describe('a worker that does not start', () => {
  it('rejects with the error of its builder, class and code kept', async () => {
    const error = await failure(spawnWorker(options({ start: 'throws' })));
    expect(error).toBeInstanceOf(DeviceError);
    expect(error).toMatchObject({ code: 'no-adapter' });
  });

  it('rejects at the deadline', async () => {
    const error = await failure(spawnWorker({ ...options({ start: 'never' }), readyDeadlineMs: 1500 }));
    expect(error).toBeInstanceOf(EnvError);
    expect((error as Error).message).toMatchInlineSnapshot(
      `"starting worker faulty: it was not ready within 1500 ms; its module must call serve. Look at its output, or allow more time."`,
    );
  });

  it('rejects when it exits first, or when its module is missing', async () => {
    expect(await failure(spawnWorker(options({ start: 'exits' })))).toMatchObject({ code: 'worker-exited' });
    const missing = { ...options(), module: new URL('./nothing-here.worker.ts', import.meta.url) };
    expect(await failure(spawnWorker(missing))).toMatchObject({ code: 'worker-failed' });
  });

  it('rejects when its module never calls serve', async () => {
    const silent = {
      ...options(),
      module: new URL('../../src/lib/errors.ts', import.meta.url),
      readyDeadlineMs: 20_000,
    };
    expect(await failure(spawnWorker(silent))).toMatchObject({ code: 'worker-exited' });
  });
});
