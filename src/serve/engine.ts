// Continuous batching: requests share a sampler's slots, and each pass takes whatever every running request has ready.
// Not a rollout: no text, no tools, one turn a request. Invariant: the tokens and log-probs of a request depend on its
// prompt, seed and settings alone; slots, queue, neighbours and reused caches change nothing.
import { KernelError } from '../lib/errors.ts';
import type { SamplingSettings } from '../model/head-draw.ts';
import type { Drawn, Sampler, SlotWork } from '../rollout/sampler.ts';

/** One turn to sample. Keys are (seed, 0, 0, 0, position), as those of `shaderl sample`. */
export interface EngineJob {
  promptIds: readonly number[];
  maxTokens: number;
  seed: number;
  settings: SamplingSettings;
  /** Ids after which nothing more is drawn; they are part of the answer. */
  stopIds: readonly number[];
}

export interface Taken {
  /** Sampled since the last `take`. */
  ids: number[];
  /** Natural logs at the sampling temperature over the whole vocabulary. */
  logprobs: number[];
  /** Why the job is over, or null while it goes on. */
  end: 'stopped' | 'length' | 'cancelled' | null;
  /** Prompt tokens whose keys and values were there already. */
  cachedTokens: number;
}

export interface EngineStats {
  slots: number;
  running: number;
  waiting: number;
  /** Whether the device failed: nothing will be answered any more. */
  failed: boolean;
}

export interface Engine {
  /** Queues a job; jobs start in the order of submission. Throws KernelError `too-long` if it can never fit. */
  submit(job: EngineJob): number;
  /**
   * What was sampled since the last call: resolves when there is something (`some`) or when the job is over (`all`). A
   * job that is over is forgotten with that answer. Rejects for an unknown job, for one whose logits are not finite,
   * and when the device failed.
   */
  take(id: number, wait: 'some' | 'all'): Promise<Taken>;
  /** Ends a job; its slot is free after the pass in hand. Safe to repeat. */
  cancel(id: number): void;
  stats(): EngineStats;
  /** Ends all jobs and waits for the pass in hand. */
  close(): Promise<void>;
}

/** What the engine needs of a sampler. */
export type PassSampler = Pick<Sampler, 'shape' | 'step' | 'fork'>;

/** A shared prefix shorter than this is computed again rather than copied from another slot. */
const worthCopying = 16;

interface Slot {
  index: number;
  /** Tokens whose keys and values are cached, from position 0 on. */
  ids: number[];
  job: Running | null;
}

interface Running {
  id: number;
  job: EngineJob;
  group: string;
  slot: Slot | null;
  /** Tokens not yet run; the last draw is among them. */
  pending: number[];
  drawnIds: number[];
  drawnLogprobs: number[];
  given: number;
  end: Taken['end'];
  /** What went wrong with this request alone. */
  fault: KernelError | null;
  cachedTokens: number;
  /** The last pass that was made for its settings, for fairness between settings. */
  lastPass: number;
  wake: (() => void)[];
}

const sharedLength = (a: readonly number[], b: readonly number[], most: number): number => {
  let n = 0;
  while (n < most && n < a.length && a[n] === b[n]) n++;
  return n;
};

/**
 * Starts the loop. `settings` must be the object that the sampler was made with: a pass draws with one set of settings,
 * and the loop writes those of the requests it serves there before each pass. `vocabulary`: ids below it exist.
 */
export function createEngine(sampler: PassSampler, settings: SamplingSettings, vocabulary: number): Engine {
  const slots = Array.from({ length: sampler.shape.slots }, (_, index): Slot => ({ index, ids: [], job: null }));
  const jobs = new Map<number, Running>();
  const waiting: Running[] = [];
  let nextId = 1;
  let pass = 0;
  let failure: unknown = null;
  let closed = false;
  let idle: (() => void) | null = null;

  const wake = (run: Running) => {
    for (const resolve of run.wake.splice(0)) resolve();
  };
  const finish = (run: Running, end: NonNullable<Taken['end']>) => {
    run.end ??= end;
    if (run.slot) run.slot.job = null;
    run.slot = null;
    wake(run);
  };

  /** Gives free slots to waiting jobs, each with the longest prefix that some slot has cached. */
  function admit(): void {
    for (const slot of slots) if (slot.job && slot.job.end !== null) slot.job = null;
    for (let free = slots.filter(({ job }) => job === null); free.length > 0 && waiting.length > 0; ) {
      const run = waiting.shift()!;
      const { promptIds } = run.job;
      const shared = slots.map((slot) => sharedLength(promptIds, slot.ids, promptIds.length - 1));
      // Ties go to the emptiest cache, so that a useful one is kept.
      const best = free.reduce((a, b) => {
        const gain = shared[b.index]! - shared[a.index]! || a.ids.length - b.ids.length;
        return gain > 0 ? b : a;
      });
      const donor = slots.reduce((a, b) => (shared[b.index]! > shared[a.index]! ? b : a));
      let reused = shared[best.index]!;
      if (shared[donor.index]! >= reused + worthCopying) {
        reused = shared[donor.index]!;
        sampler.fork(donor.index, best.index, reused);
      }
      best.ids = promptIds.slice(0, reused);
      best.job = run;
      run.slot = best;
      run.cachedTokens = reused;
      run.pending = promptIds.slice(reused);
      free = free.filter((slot) => slot !== best);
    }
  }

  /** The work of one pass: all of one settings group that can draw, and prefill of any group in the rows left. */
  function plan(): { work: SlotWork[]; who: Running[] } {
    const running = slots.flatMap(({ job }) => (job ? [job] : []));
    const first = running.reduce<Running | null>((a, b) => (a === null || b.lastPass < a.lastPass ? b : a), null);
    const work: SlotWork[] = [];
    const who: Running[] = [];
    if (!first) return { work, who };
    let room = sampler.shape.rows;
    // Whoever waits for one token only comes first: a long prompt must not hold up the others.
    for (const run of [...running].sort((a, b) => a.pending.length - b.pending.length || a.id - b.id)) {
      const draws = run.group === first.group;
      const usable = draws ? run.pending.length : run.pending.length - 1;
      const take = Math.min(usable, room);
      if (take <= 0) continue;
      const start = run.slot!.ids.length;
      const complete = take === run.pending.length;
      const key = complete ? { seed: run.job.seed, step: 0, group: 0, member: 0, position: start + take } : null;
      work.push({ slot: run.slot!.index, start, tokens: run.pending.slice(0, take), key });
      who.push(run);
      if (draws) run.lastPass = pass;
      room -= take;
    }
    Object.assign(settings, first.job.settings);
    return { work, who };
  }

  function accept(run: Running, drawn: Drawn): void {
    if (!(drawn.id < vocabulary && Number.isFinite(drawn.logprob))) {
      run.fault = new KernelError(
        'non-finite-logits',
        `sampling request ${run.id}: found id ${drawn.id}, log-prob ${drawn.logprob}; wanted an id below ` +
          `${vocabulary}. The weights or the device are at fault: run shaderl qualify.`,
      );
      // Nobody may go on from keys and values that gave this.
      run.slot!.ids = [];
      finish(run, 'cancelled');
      return;
    }
    run.pending.push(drawn.id);
    run.drawnIds.push(drawn.id);
    run.drawnLogprobs.push(drawn.logprob);
    if (run.job.stopIds.includes(drawn.id)) finish(run, 'stopped');
    else if (run.drawnIds.length >= run.job.maxTokens) finish(run, 'length');
    else wake(run);
  }

  async function loop(): Promise<void> {
    while (!closed) {
      admit();
      pass += 1;
      const { work, who } = plan();
      if (work.length === 0) {
        await new Promise<void>((resolve) => {
          idle = resolve;
        });
        continue;
      }
      const held = who.map((run) => run.slot!);
      const drawn = await sampler.step(work);
      for (const [i, run] of who.entries()) {
        const tokens = work[i]!.tokens;
        held[i]!.ids.push(...tokens);
        run.pending.splice(0, tokens.length);
        // A job may have been cancelled during the pass.
        if (run.end === null && drawn[i]) accept(run, drawn[i]);
      }
    }
  }

  const ended = loop().catch((error: unknown) => {
    failure = error;
    for (const run of jobs.values()) wake(run);
  });

  const dead = (): unknown =>
    failure ??
    new KernelError('engine-closed', 'taking a request: the engine was closed; wanted a running one. Start it again.');

  return {
    submit(job) {
      if (failure || closed) throw dead();
      const length = job.promptIds.length + job.maxTokens;
      if (job.promptIds.length === 0 || job.maxTokens < 1 || length > sampler.shape.cacheLength) {
        throw new KernelError(
          'too-long',
          `submitting a request: found ${job.promptIds.length} prompt tokens and ${job.maxTokens} new ones; wanted ` +
            `at least one of each and at most ${sampler.shape.cacheLength} together. Shorten one of them.`,
        );
      }
      const { temperature, topK, topP, minP } = job.settings;
      const run: Running = {
        id: nextId++,
        job,
        group: [temperature, topK, topP, minP].join(),
        slot: null,
        pending: [],
        drawnIds: [],
        drawnLogprobs: [],
        given: 0,
        end: null,
        fault: null,
        cachedTokens: 0,
        lastPass: pass,
        wake: [],
      };
      jobs.set(run.id, run);
      waiting.push(run);
      idle?.();
      return run.id;
    },
    async take(id, wait) {
      const run = jobs.get(id);
      if (!run) {
        throw new KernelError(
          'unknown-job',
          `taking the tokens of request ${id}: it is not known or is over; wanted an open one. Submit it first.`,
        );
      }
      while (run.end === null && (wait === 'all' || run.drawnIds.length === run.given)) {
        if (failure || closed) throw dead();
        await new Promise<void>((resolve) => run.wake.push(resolve));
      }
      const from = run.given;
      run.given = run.drawnIds.length;
      if (run.end !== null) jobs.delete(id);
      if (run.fault) throw run.fault;
      const { end, cachedTokens } = run;
      return { ids: run.drawnIds.slice(from), logprobs: run.drawnLogprobs.slice(from), end, cachedTokens };
    },
    cancel(id) {
      const run = jobs.get(id);
      if (!run || run.end !== null) return;
      const place = waiting.indexOf(run);
      if (place >= 0) waiting.splice(place, 1);
      run.end = 'cancelled';
      jobs.delete(id);
      // The slot itself stays taken until the pass in hand is over: its cache is being written.
      wake(run);
    },
    stats: () => ({
      slots: slots.length,
      running: slots.filter(({ job }) => job !== null).length,
      waiting: waiting.length,
      failed: failure !== null,
    }),
    async close() {
      closed = true;
      idle?.();
      await ended;
      for (const run of jobs.values()) wake(run);
    },
  };
}
