// A worker whose service fails in every way that spawn.ts must survive. Not a test.
import { setTimeout as sleep } from 'node:timers/promises';
import { AuditError, DeviceError, EvaluationError } from '../../src/lib/errors.ts';
import { serve } from '../../workers/serve.ts';

/** What the builder is told to do, by `data`. */
export interface FaultyData {
  start?: 'throws' | 'never' | 'exits';
  /** Shared with the test: index 0 counts disposals. */
  disposals?: SharedArrayBuffer;
}

const service = {
  async echo(value: unknown): Promise<unknown> {
    return value;
  },
  async fail(kind: 'device' | 'audit' | 'plain'): Promise<void> {
    if (kind === 'device') throw new DeviceError('lost', 'the device is gone');
    if (kind === 'audit')
      throw new AuditError('mask', 'mask differs', { cause: new EvaluationError('inner', 'because') });
    throw new TypeError('no method of that name');
  },
  async wait(ms: number): Promise<string> {
    await sleep(ms);
    return 'waited';
  },
  /** Blocks the thread: nothing else of it runs. */
  async spin(): Promise<void> {
    for (;;);
  },
  async exit(): Promise<void> {
    process.exit(3);
  },
  /** Fails outside of any call. */
  async throwLater(): Promise<void> {
    setTimeout(() => {
      throw new Error('unforeseen');
    }, 10);
    await sleep(60_000);
  },
  async unsendable(): Promise<unknown> {
    return () => 1;
  },
};
export type FaultyService = typeof service;

await serve<FaultyService>(async (data) => {
  const { start, disposals } = data as FaultyData;
  if (start === 'throws') throw new DeviceError('no-adapter', 'no adapter here');
  if (start === 'exits') process.exit(7);
  if (start === 'never') await sleep(60_000);
  return {
    service,
    dispose: () => {
      if (disposals) Atomics.add(new Int32Array(disposals), 0, 1);
    },
  };
});
