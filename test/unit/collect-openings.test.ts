// The rollout loop while sessions are being opened: members that run go on, and nothing waits for a slow opening.
import { expect, test } from 'vitest';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import { EnvError } from '../../src/lib/errors.ts';
import { collect } from '../../src/rollout/collect.ts';
import type { Sampler } from '../../src/rollout/sampler.ts';
import { STOP, threeTokenText as text } from '../support/three-token-text.ts';

/** Every draw ends its turn at once: no device is needed. */
const sampler = (slots: number): Sampler => ({
  shape: { slots, cacheLength: 64, rows: 64 },
  use: () => {},
  step: async (work) =>
    work.map(({ key }) => (key ? { id: STOP, logprob: -1, truncatedLogprob: -1, entropy: 0 } : null)),
  fork: () => {},
  destroy: () => {},
});

const settings = {
  temperature: 1,
  maxCompletionTokens: 8,
  maxToolRounds: 0,
  enableThinking: false,
  invalidCallObservation: '',
  policy: 'base',
};

function environment(open: (id: string) => Promise<void>, verified: (id: string) => void): EnvironmentPort {
  return {
    async open(task) {
      await open(task.id);
      return { sessionId: `${task.id}#1`, messages: [], tools: [] };
    },
    call: async () => ({ content: '', error: false }),
    async verify(sessionId) {
      verified(sessionId.split('#')[0]!);
      return { strict: true, reward: 1, parts: {}, invalidDispatches: 0, toolErrors: 0, answer: null, log: [] };
    },
    log: async () => [],
    close: async () => {},
  };
}

const groups = (...ids: string[]) =>
  ids.map((id, group) => [{ task: { id, payload: {} }, step: 1, group, member: 0, seed: 1 }]);

test('an opening that waits for the end of another member holds nobody up', async () => {
  let release = () => {};
  const ended = new Promise<void>((resolve) => {
    release = resolve;
  });
  const order: string[] = [];
  const port = environment(
    async (id) => {
      order.push(`open ${id}`);
      if (id === 'slow') await ended;
    },
    (id) => {
      order.push(`end ${id}`);
      if (id === 'quick') release();
    },
  );
  const made = await collect(groups('slow', 'quick', 'next'), settings, {
    sampler: sampler(2),
    text,
    environment: port,
    now: () => 0,
  });
  expect(made.map(([episode]) => episode!.taskId)).toEqual(['slow', 'quick', 'next']);
  expect(order.slice(0, 3)).toEqual(['open slow', 'open quick', 'end quick']);
  expect(order).toHaveLength(6);
});

test('an opening that fails for good ends the collection with its reason', async () => {
  const port = environment(
    async (id) => {
      if (id === 'b') throw new EnvError('service-refused', 'opening b: refused');
    },
    () => {},
  );
  const failed = collect(groups('a', 'b', 'c'), settings, {
    sampler: sampler(1),
    text,
    environment: port,
    now: () => 0,
  });
  await expect(failed).rejects.toMatchObject({ code: 'service-refused' });
});

test('a group that never fits is refused', async () => {
  const [first, second] = [groups('a')[0]!, groups('b')[0]!];
  const wide = [[...first, { ...first[0]!, member: 1 }], second];
  const port = environment(
    async () => {},
    () => {},
  );
  const failed = collect(wide, settings, { sampler: sampler(1), text, environment: port, now: () => 0 });
  await expect(failed).rejects.toMatchObject({ code: 'group-too-large' });
});
