// Tokens that the rollout loop draws and keeps in no episode: the count of what a device did in vain.
import { expect, test } from 'vitest';
import type { EnvironmentPort } from '../../src/environments/port.ts';
import { EnvError } from '../../src/lib/errors.ts';
import { collect } from '../../src/rollout/collect.ts';
import type { Drawn, Sampler } from '../../src/rollout/sampler.ts';
import { STOP, threeTokenText as text } from '../support/three-token-text.ts';

const settings = {
  temperature: 1,
  maxCompletionTokens: 11,
  maxToolRounds: 0,
  enableThinking: false,
  invalidCallObservation: '',
  policy: 'base',
};

/** Draws a stop at the position that `stopAt` has for the slot, else a word. No device is needed. */
function sampler(stopAt: readonly number[]): { sampler: Sampler; drawn: () => number } {
  let drawn = 0;
  const draw = (slot: number, position: number): Drawn => {
    drawn += 1;
    return { id: position === stopAt[slot] ? STOP : 4, logprob: -1, truncatedLogprob: -1, entropy: 0 };
  };
  const made: Sampler = {
    shape: { slots: stopAt.length, cacheLength: 64, rows: 64 },
    use: () => {},
    step: async (work) => work.map(({ slot, key }) => (key ? draw(slot, key.position) : null)),
    decode: (rows) => {
      let done = 0;
      return {
        left: 40,
        send: async (count) =>
          Array.from({ length: count }, () => {
            done += 1;
            return rows.map(({ slot, key }) => draw(slot, key.position + done - 1));
          }),
      };
    },
    fork: () => {},
    destroy: () => {},
  };
  return { sampler: made, drawn: () => drawn };
}

function environment(verify: () => void): EnvironmentPort {
  return {
    open: async ({ id }) => ({ sessionId: `${id}#1`, messages: [], tools: [] }),
    call: async () => ({ content: '', error: false }),
    async verify() {
      verify();
      return { strict: true, reward: 1, parts: {}, invalidDispatches: 0, toolErrors: 0, answer: null, log: [] };
    },
    log: async () => [],
    close: async () => {},
  };
}

async function run(stopAt: readonly number[], verify: () => void = () => {}) {
  const { sampler: own, drawn } = sampler(stopAt);
  const groups = stopAt.map((_, group) => [
    { task: { id: `t${group}`, payload: {} }, step: 1, group, member: 0, seed: 1 },
  ]);
  let dropped = 0;
  const onDropped = (tokens: number) => {
    dropped += tokens;
  };
  const ports = { sampler: own, text, environment: environment(verify), now: () => 0, onDropped };
  const episodes = (await collect(groups, settings, ports)).flat();
  const kept = episodes.flatMap(({ mask }) => mask).reduce((sum: number, bit) => sum + bit, 0);
  return { drawn: drawn(), kept, dropped };
}

test('steps sent ahead of a stop are counted as dropped', async () => {
  // Token 1 comes with the prompt's pass. Ten steps are then sent, in messages of 4, 4 and 2, before the first stop is
  // seen: of them the member that stops at its 4th token drops seven.
  const made = await run([6, 40]);
  expect(made).toEqual({ drawn: 22, kept: 15, dropped: 7 });
});

test('an attempt that a failed service ended is counted as dropped, once it is made again', async () => {
  let asked = 0;
  const made = await run([6], () => {
    asked += 1;
    if (asked === 1) throw new EnvError('service-died', 'verifying: the service died');
  });
  expect(made.kept).toBe(4);
  expect(made.drawn).toBe(made.kept + made.dropped);
  expect(made.dropped).toBeGreaterThanOrEqual(4);
});

test('a rollout that was given up keeps its tokens in its record, and only the tries before are dropped', async () => {
  const made = await run([3], () => {
    throw new EnvError('service-died', 'verifying: the service died');
  });
  expect(made).toEqual({ drawn: 3, kept: 1, dropped: 2 });
});
