// Signals to a long run: one request stops it once, however often the signal arrives; a later Ctrl-C ends the process.
import { afterEach, expect, test, vi } from 'vitest';
import { interruptible } from '../../cli/interrupt.ts';

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

/** Work that waits for a request to stop, is then sent `signals` more with their delays in ms, and ends. */
async function stopWith(signals: { after: number; signal: NodeJS.Signals }[]) {
  vi.useFakeTimers({ toFake: ['performance'] });
  const exits: unknown[] = [];
  vi.spyOn(process, 'exit').mockImplementation((code) => {
    exits.push(code);
    return undefined as never;
  });
  const lines: string[] = [];
  const listeners = process.listenerCount('SIGTERM');
  const outcome = await interruptible({ line: (text) => lines.push(text), update() {}, clear() {} }, async (asked) => {
    const before = asked();
    process.emit('SIGTERM', 'SIGTERM');
    for (const { after, signal } of signals) {
      vi.advanceTimersByTime(after);
      process.emit(signal, signal);
    }
    return [before, asked()];
  });
  expect(process.listenerCount('SIGTERM')).toBe(listeners);
  expect(outcome).toEqual([false, true]);
  return { exits, lines };
}

test.each(['SIGTERM', 'SIGINT'] as const)(
  'a %s that comes at once again, to the process and to its group, is one request to stop after the step',
  async (signal) => {
    const { exits, lines } = await stopWith([{ after: 0, signal }]);
    expect(exits).toEqual([]);
    expect(lines).toEqual(['stopping after this step; Ctrl-C from now on stops at once and loses it']);
  },
);

test('a later SIGINT ends the process with status 130', async () => {
  expect((await stopWith([{ after: 1500, signal: 'SIGINT' }])).exits).toEqual([130]);
});

test('a later SIGTERM, which a scheduler sends again at the limit, is the same request', async () => {
  const later = { after: 60_000, signal: 'SIGTERM' } as const;
  const { exits, lines } = await stopWith([later, later]);
  expect(exits).toEqual([]);
  expect(lines).toHaveLength(1);
});
