// Members of a batch that share a sampler's slots as rollouts do: groups' prompts run once and are copied, some members
// start later, whoever ends makes room for the next, prompts run in pieces beside the decoding of others.
// Not a rollout: no text, no environment; a member samples a number of tokens that is fixed beforehand.
// Invariant: a member's prompt and keys follow from its number alone, so that every batch must draw the same for it.
import { KernelError } from '../src/lib/errors.ts';
import type { Drawn, Sampler, SlotWork } from '../src/rollout/sampler.ts';
import type { TokenSettings } from './settings.ts';
import { tokensFrom } from './steps.ts';

export interface MemberPlan {
  member: number;
  /** Members of a group have one and the same array. */
  prompt: readonly number[];
  newTokens: number;
}

export interface SampledMember extends MemberPlan {
  drawn: Drawn[];
}

interface Running extends SampledMember {
  slot: number;
  cached: number;
  /** Tokens that are not cached yet. */
  pending: number[];
  /** Members that wait for a copy of this one's prompt. */
  followers: Running[];
}

const groupSize = 4;
/** Decode steps in one message to the device, and messages that are under way together. */
const stepsASend = 4;
const sends = 2;

/** Half as many members again as the batch has slots, and one: so many slots are taken a second time. */
export function planMembers(vocabulary: number, settings: TokenSettings, batch: number): MemberPlan[] {
  const [shortest, longest] = settings.promptTokens;
  const count = batch + Math.ceil(batch / 2) + 1;
  const mean = Math.max(settings.newTokens, Math.ceil(settings.batchTokens / count));
  const prompts = Array.from({ length: Math.ceil(count / groupSize) }, (_, group) =>
    tokensFrom(vocabulary, group * 1009, shortest + ((group * 7919) % (longest - shortest + 1))),
  );
  return Array.from({ length: count }, (_, member) => ({
    member,
    prompt: prompts[Math.floor(member / groupSize)]!,
    newTokens: Math.ceil(mean / 2) + ((member * 7919) % (mean + 1)),
  }));
}

/** Positions that a slot needs for these members: what is drawn past a member's end has a place in the cache too. */
export function positionsOf(members: readonly MemberPlan[]): number {
  return Math.max(...members.map(({ prompt, newTokens }) => prompt.length + newTokens)) + stepsASend * sends;
}

const keyOf = ({ member, prompt, drawn }: Running) => ({
  seed: 1,
  step: 1,
  group: 0,
  member,
  position: prompt.length + drawn.length,
});

function keep(run: Running, drawn: Drawn | null | undefined): void {
  if (!drawn) {
    const message = `drawing token ${run.drawn.length} of member ${run.member}: its logits are not finite; wanted finite ones. Check the weights.`;
    throw new KernelError('no-draw', message);
  }
  run.drawn.push(drawn);
  run.pending.push(drawn.id);
}

/**
 * Samples all members, in as many slots as the sampler has. `fullTokens`: tokens of passes in which every slot drew one.
 * @throws KernelError `no-draw`.
 */
export async function sampleMembers(
  sampler: Sampler,
  members: readonly MemberPlan[],
): Promise<{ sampled: SampledMember[]; fullTokens: number }> {
  const { slots, rows } = sampler.shape;
  const waiting = [...members];
  const free = Array.from({ length: slots }, (_, slot) => slot);
  const sampled: SampledMember[] = [];
  let running: Running[] = [];
  let fullTokens = 0;

  /** Gives free slots to the members that wait, `most` of them; those of one group follow the first of them. */
  function admit(most: number): void {
    for (let left = Math.min(most, free.length, waiting.length); left > 0; ) {
      const { prompt } = waiting[0]!;
      const others = waiting.findIndex((plan) => plan.prompt !== prompt);
      const together = waiting.splice(0, Math.min(left, others < 0 ? left : others));
      left -= together.length;
      const [leader, ...followers] = together.map(
        (plan): Running => ({
          ...plan,
          drawn: [],
          slot: free.shift()!,
          cached: 0,
          pending: [...prompt],
          followers: [],
        }),
      );
      running.push({ ...leader!, followers });
    }
  }

  function cache(run: Running, count: number): void {
    run.pending.splice(0, count);
    run.cached += count;
  }

  /** A pass of what every member has ready: first those that decode, then pieces of prompts. */
  async function pass(): Promise<void> {
    let room = rows;
    const work: SlotWork[] = [];
    const who: Running[] = [];
    for (const run of running) {
      // A leader leaves the last token of the prompt, which each member runs with its own key.
      const ready = run.followers.length > 0 ? run.pending.length - 1 : run.pending.length;
      const take = Math.min(ready, room);
      if (take === 0) continue;
      const key = take === run.pending.length ? keyOf(run) : null;
      work.push({ slot: run.slot, start: run.cached, tokens: run.pending.slice(0, take), key });
      who.push(run);
      room -= take;
    }
    const results = await sampler.step(work);
    if (work.filter(({ key }) => key).length === slots) fullTokens += slots;
    for (const [i, run] of who.entries()) {
      cache(run, work[i]!.tokens.length);
      if (work[i]!.key) keep(run, results[i]);
      if (run.followers.length === 0 || run.pending.length > 1) continue;
      for (const follower of run.followers) {
        sampler.fork(run.slot, follower.slot, run.cached);
        cache(follower, run.cached);
      }
      running.push(...run.followers.splice(0));
    }
  }

  /** Steps ahead of their results; what is drawn after a member's end is dropped. */
  async function decode(): Promise<void> {
    const rowsOf = running.map((run) => {
      return { slot: run.slot, position: run.cached, token: run.pending[0]!, key: keyOf(run) };
    });
    const decoding = sampler.decode!(rowsOf);
    const underWay = Array.from({ length: sends }, () => decoding.send(stepsASend));
    for (const step of (await Promise.all(underWay)).flat()) {
      for (const [i, run] of running.entries()) {
        if (run.drawn.length === run.newTokens) continue;
        cache(run, 1);
        keep(run, step[i]);
        if (running.length === slots) fullTokens += 1;
      }
    }
  }

  admit(Math.ceil(slots / 2));
  while (running.length > 0) {
    const single = running.every(({ pending, followers }) => pending.length === 1 && followers.length === 0);
    await (single && sampler.decode ? decode() : pass());
    const ended = running.filter(({ drawn, newTokens }) => drawn.length === newTokens);
    running = running.filter((run) => !ended.includes(run));
    for (const { slot, member, prompt, newTokens, drawn } of ended) {
      free.push(slot);
      sampled[member] = { member, prompt, newTokens, drawn };
    }
    if (running.some(({ drawn }) => drawn.length > 0) || running.length === 0) admit(slots);
  }
  return { sampled, fullTokens };
}
