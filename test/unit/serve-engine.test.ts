import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { philox4x32 } from '../../src/lib/rng.ts';
import type { SamplingSettings } from '../../src/model/head-draw.ts';
import type { Drawn, SlotWork } from '../../src/rollout/sampler.ts';
import { createEngine, type EngineJob, type PassSampler } from '../../src/serve/engine.ts';

const vocabulary = 40;

/** What a "model" draws after these tokens: a function of tokens, key and settings alone. */
function next(tokens: readonly number[], seed: number, position: number, settings: SamplingSettings): Drawn {
  const { temperature, topK, topP, minP } = settings;
  let hash = 1;
  for (const word of [...tokens, position, temperature * 100, topK, topP * 100, minP * 100]) {
    hash = philox4x32([word, hash, 0, 0], [seed, 0])[0];
  }
  return { id: hash % vocabulary, logprob: -hash / 2 ** 32, truncatedLogprob: 0, entropy: 0 };
}

/** A sampler whose caches are lists of tokens: what it draws shows which tokens the slot really held. */
function listSampler(slots: number, cacheLength: number, rows: number, settings: SamplingSettings) {
  const caches: number[][] = Array.from({ length: slots }, () => []);
  let passes = 0;
  let forks = 0;
  const sampler: PassSampler = {
    shape: { slots, cacheLength, rows },
    async step(work: readonly SlotWork[]) {
      passes += 1;
      const count = work.reduce((sum, { tokens }) => sum + tokens.length, 0);
      if (count > rows || new Set(work.map(({ slot }) => slot)).size < work.length) throw new Error('a bad pass');
      const drawn = work.map(({ slot, start, tokens, key }) => {
        const cache = caches[slot]!;
        if (start > cache.length)
          throw new Error(`slot ${slot} has ${cache.length} tokens, the pass starts at ${start}`);
        cache.splice(start, cache.length, ...tokens);
        if (cache.length > cacheLength) throw new Error('the cache is too short');
        return key && next(cache, key.seed, key.position, settings);
      });
      await new Promise<void>((resolve) => setImmediate(resolve));
      return drawn;
    },
    fork(from, to, length) {
      forks += 1;
      caches[to]!.splice(0, cacheLength, ...caches[from]!.slice(0, length));
    },
  };
  return { sampler, passes: () => passes, forks: () => forks };
}

const plain: SamplingSettings = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const makeEngine = (slots: number, cacheLength = 200, rows = 24) => {
  const settings = { ...plain };
  const list = listSampler(slots, cacheLength, rows, settings);
  return { ...list, engine: createEngine(list.sampler, settings, vocabulary) };
};

/** The answer to a job by its definition. */
function alone({ promptIds, maxTokens, seed, settings, stopIds }: EngineJob) {
  const tokens = [...promptIds];
  const ids: number[] = [];
  const logprobs: number[] = [];
  while (ids.length < maxTokens && !stopIds.includes(ids.at(-1) ?? -1)) {
    const { id, logprob } = next(tokens, seed, tokens.length, settings);
    tokens.push(id);
    ids.push(id);
    logprobs.push(logprob);
  }
  return { ids, logprobs, end: stopIds.includes(ids.at(-1)!) ? 'stopped' : 'length' };
}

// Prompts share beginnings, as those of agents do.
const stem = Array.from({ length: 90 }, (_, i) => (i * 7) % vocabulary);
const anyJob = fc.record({
  stemLength: fc.integer({ min: 0, max: 90 }),
  tail: fc.array(fc.integer({ min: 0, max: vocabulary - 1 }), { minLength: 1, maxLength: 30 }),
  maxTokens: fc.integer({ min: 1, max: 25 }),
  seed: fc.integer({ min: 0, max: 3 }),
  temperature: fc.constantFrom(0, 0.5, 1),
  wait: fc.constantFrom('some' as const, 'all' as const),
  cancelAfter: fc.option(fc.integer({ min: 0, max: 5 }), { freq: 4 }),
  lag: fc.integer({ min: 0, max: 6 }),
});

describe('the engine', () => {
  it('answers each request as if it were alone, whatever runs beside it, is cancelled, or left a cache', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyJob, { minLength: 1, maxLength: 12 }),
        fc.integer({ min: 1, max: 4 }),
        async (wanted, slots) => {
          const { engine } = makeEngine(slots);
          const outcomes = wanted.map(async ({ stemLength, tail, temperature, wait, cancelAfter, lag, ...rest }) => {
            for (let i = 0; i < lag; i++) await new Promise<void>((resolve) => setImmediate(resolve));
            const settings = { ...plain, temperature };
            const job: EngineJob = {
              ...rest,
              promptIds: [...stem.slice(0, stemLength), ...tail],
              settings,
              stopIds: [3],
            };
            const id = engine.submit(job);
            const ids: number[] = [];
            const logprobs: number[] = [];
            if (cancelAfter !== null) {
              for (let i = 0; i < cancelAfter; i++) await new Promise<void>((resolve) => setImmediate(resolve));
              engine.cancel(id);
              return;
            }
            for (;;) {
              const taken = await engine.take(id, wait);
              ids.push(...taken.ids);
              logprobs.push(...taken.logprobs);
              if (taken.end === null) continue;
              expect({ ids, logprobs, end: taken.end }).toEqual(alone(job));
              return;
            }
          });
          await Promise.all(outcomes);
          await expect.poll(() => engine.stats()).toEqual({ slots, running: 0, waiting: 0, failed: false });
          await engine.close();
        },
      ),
      { numRuns: 30 },
    );
  });

  it('computes a shared prompt once: from its own cache, or from that of a busy slot', async () => {
    const { engine, forks } = makeEngine(2, 200, 200);
    const job = { promptIds: stem, maxTokens: 40, seed: 1, settings: plain, stopIds: [] };
    const first = engine.submit(job);
    expect((await engine.take(first, 'some')).cachedTokens).toBe(0);
    const beside = await engine.take(engine.submit({ ...job, seed: 2, maxTokens: 1 }), 'all');
    expect([beside.cachedTokens, forks()]).toEqual([stem.length - 1, 1]);
    await engine.take(first, 'all');
    const later = await engine.take(engine.submit({ ...job, seed: 3, maxTokens: 1 }), 'all');
    expect([later.cachedTokens, forks()]).toEqual([stem.length - 1, 1]);
    await engine.close();
  });

  it('gives requests of other settings their turn while a long prompt is being read', async () => {
    const { engine } = makeEngine(2, 200, 4);
    const long = engine.submit({ promptIds: stem, maxTokens: 1, seed: 1, settings: plain, stopIds: [] });
    const other = { promptIds: [1, 2], maxTokens: 10, seed: 1, settings: { ...plain, temperature: 0.5 }, stopIds: [] };
    let longIsOver = false;
    const longEnd = engine.take(long, 'all').then(() => {
      longIsOver = true;
    });
    await engine.take(engine.submit(other), 'all');
    expect(longIsOver).toBe(false);
    await longEnd;
    await engine.close();
  });

  it('refuses what can never fit, and forgets a request that was cancelled or is over', async () => {
    const { engine } = makeEngine(1, 20);
    const job = { promptIds: [1, 2, 3], maxTokens: 17, seed: 1, settings: plain, stopIds: [] };
    expect(() => engine.submit({ ...job, maxTokens: 18 })).toThrow(/found 3 prompt tokens and 18 new ones/);
    expect(() => engine.submit({ ...job, promptIds: [] })).toThrow(/at least one of each/);
    const id = engine.submit(job);
    await engine.take(id, 'all');
    await expect(engine.take(id, 'all')).rejects.toThrow(/is not known or is over/);
    const running = engine.submit(job);
    const waiting = engine.submit(job);
    const taken = Promise.all([engine.take(running, 'all'), engine.take(waiting, 'all')]);
    engine.cancel(running);
    engine.cancel(waiting);
    engine.cancel(waiting);
    expect((await taken).map(({ end }) => end)).toEqual(['cancelled', 'cancelled']);
    await engine.close();
    expect(() => engine.submit(job)).toThrow(/the engine was closed/);
  });

  it('fails every open request with the fault of the device', async () => {
    const settings = { ...plain };
    const { sampler } = listSampler(1, 50, 50, settings);
    const broken: PassSampler = { ...sampler, step: () => Promise.reject(new Error('the device is lost')) };
    const engine = createEngine(broken, settings, vocabulary);
    const job = { promptIds: [1], maxTokens: 5, seed: 1, settings: plain, stopIds: [] };
    const taken = [engine.submit(job), engine.submit(job)].map((id) => engine.take(id, 'all'));
    for (const outcome of await Promise.allSettled(taken)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { message: 'the device is lost' } });
    }
    expect(() => engine.submit(job)).toThrow('the device is lost');
    expect(engine.stats()).toMatchObject({ failed: true });
  });

  it('fails a request whose logits are not finite, and that one alone', async () => {
    const settings = { ...plain };
    const { sampler } = listSampler(2, 50, 50, settings);
    const noId = { id: 0xffffffff, logprob: Number.NaN, truncatedLogprob: Number.NaN, entropy: Number.NaN };
    const spoilt: PassSampler = {
      ...sampler,
      step: async (work) => {
        const drawn = await sampler.step(work);
        return drawn.map((one, i) => (one && work[i]!.key!.seed === 2 ? noId : one));
      },
    };
    const engine = createEngine(spoilt, settings, vocabulary);
    const job: EngineJob = { promptIds: [1, 2], maxTokens: 5, seed: 1, settings: plain, stopIds: [] };
    const good = engine.take(engine.submit(job), 'all');
    await expect(engine.take(engine.submit({ ...job, seed: 2 }), 'all')).rejects.toMatchObject({
      code: 'non-finite-logits',
    });
    expect((await good).ids).toEqual(alone(job).ids);
    await engine.close();
  });
});
