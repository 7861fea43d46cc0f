// The rollout loop: groups of members share the sampler's slots; each pass takes whatever every member has ready.
// Not a trainer. Invariant: an episode's tokens depend on its spec, the weights and its environment alone; slots, the
// order of finishing and who runs beside it change nothing. A failed service is retried from reset, never scored.
import type { EnvironmentPort } from '../environments/port.ts';
import { EnvError, KernelError, PlanError } from '../lib/errors.ts';
import type { Text } from '../model/text.ts';
import type { Episode, TurnRecord } from './episode.ts';
import {
  addDrawn,
  completionLength,
  endTurn,
  type Member,
  type MemberSpec,
  type RolloutSettings,
  startMember,
  toEpisode,
} from './member.ts';
import type { Drawn, Sampler, SlotWork } from './sampler.ts';

export interface CollectPorts {
  sampler: Sampler;
  text: Text;
  environment: EnvironmentPort;
  /** Milliseconds, for durations only. */
  now: () => number;
  onProgress?: (finished: number, total: number, tokens: number) => void;
  /**
   * Told of tokens that were drawn and are in no episode: by steps sent ahead of a stop, or in an attempt that a failed
   * service ended. Equal rollouts differ in it, because it depends on what came back when.
   */
  onDropped?: (tokens: number) => void;
}

/** Decode steps in one message to the device, and how many such messages may be under way. */
const stepsASend = 4;
const sendsAhead = 3;

/** Attempts at a member before its environment failure is recorded instead of a verdict. */
const maxAttempts = 3;

interface Running {
  member: Member;
  slot: number;
  cached: number;
  attempt: number;
  place: [group: number, index: number];
  /** Slots that wait for a copy of this one's prompt. */
  followers: Running[];
}

/** @throws KernelError `non-finite-logits`. */
function finiteDraw(drawn: Drawn | null, { member }: Running): Drawn {
  if (drawn) return drawn;
  const { group, member: index } = member.spec;
  const message = `drawing for member ${index} of group ${group}: its logits are not finite; check the adapter, or lower the learning rate and resume from the last checkpoint.`;
  throw new KernelError('non-finite-logits', message);
}

const isInfrastructure = (error: unknown): error is EnvError => error instanceof EnvError;

/**
 * Rolls out every group; the result has the shape of `groups`. A group starts when all its members have a slot, so a
 * group may not be larger than the sampler's slots. @throws EnvError `group-fingerprint` when members of one group get
 * different prompts.
 */
export async function collect(
  groups: readonly (readonly MemberSpec[])[],
  settings: RolloutSettings,
  ports: CollectPorts,
): Promise<Episode[][]> {
  const { sampler, text, environment, now } = ports;
  const episodes: Episode[][] = groups.map(() => []);
  const total = groups.reduce((sum, group) => sum + group.length, 0);
  const free = Array.from({ length: sampler.shape.slots }, (_, slot) => slot);
  const running: Running[] = [];
  /** Members whose environment is at work; the others go on decoding meanwhile. */
  const away = new Map<Running, Promise<void>>();
  /** Groups whose sessions are being opened; the others go on decoding meanwhile. */
  const starting = new Map<number, Promise<void>>();
  /** Answers of environments so far. */
  let answered = 0;
  /** How long an answer usually takes, and the last pass took, in milliseconds. */
  let answerMs = 0;
  let passMs = 0;
  const waitedFor = new WeakSet<Promise<void>>();
  let failure: { error: unknown } | null = null;
  let nextGroup = 0;
  let finished = 0;
  let tokens = 0;

  async function begin(spec: MemberSpec, slot: number, attempt: number, place: Running['place']): Promise<Running> {
    const opened = await environment.open(spec.task);
    const prompt = text.renderPrompt({
      messages: opened.messages,
      tools: opened.tools,
      enableThinking: settings.enableThinking,
    });
    const room = sampler.shape.cacheLength - settings.maxCompletionTokens;
    if (prompt.length > room) {
      const message = `opening task ${spec.task.id}: its prompt has ${prompt.length} tokens, room is for ${room} beside ${settings.maxCompletionTokens} of completion; raise the prompt limit or use a model with more positions.`;
      throw new PlanError('prompt-too-long', message);
    }
    return {
      member: startMember(spec, opened.sessionId, prompt, opened.tools, now()),
      slot,
      cached: 0,
      attempt,
      place,
      followers: [],
    };
  }

  /** Opens a group's sessions side by side, in the order of its members: a service takes one way to it for all. */
  async function startGroup(group: readonly MemberSpec[], index: number): Promise<Running[]> {
    const started = await Promise.all(group.map((spec, i) => begin(spec, free.shift()!, 1, [index, i])));
    const [leader, ...others] = started;
    for (const other of others) {
      if (other.member.stream.ids.join() !== leader!.member.stream.ids.join()) {
        const message = `opening group ${index}: members got different prompts for task ${leader!.member.spec.task.id}; a group must start from one observation. Check the environment's reset.`;
        throw new EnvError('group-fingerprint', message);
      }
    }
    leader!.followers = others;
    return started;
  }

  /** Runs what asks an environment; `ended` in any case. The first failure is kept, and how long answers take. */
  function ask(work: () => Promise<void>, ended: () => void): Promise<void> {
    const since = now();
    return work()
      .catch((error: unknown) => {
        failure ??= { error };
      })
      .finally(() => {
        ended();
        answered += 1;
        answerMs += (now() - since - answerMs) / 8;
      });
  }

  /** Starts the groups that have slots; their members join when all of a group's sessions are open. Whether it did. */
  function startGroups(): boolean {
    const first = nextGroup;
    while (nextGroup < groups.length && free.length >= groups[nextGroup]!.length) {
      const index = nextGroup++;
      const open = async () => {
        running.push(...(await startGroup(groups[index]!, index)));
      };
      starting.set(
        index,
        ask(open, () => starting.delete(index)),
      );
    }
    return nextGroup > first;
  }

  function planPass(): { work: SlotWork[]; who: Running[] } {
    const work: SlotWork[] = [];
    const who: Running[] = [];
    const waiting = new Set(running.flatMap((r) => r.followers));
    let room = sampler.shape.rows;
    for (const run of running) {
      if (waiting.has(run) || away.has(run) || room === 0) continue;
      const { pending, spec, stream } = run.member;
      // A leader fills the prompt but its last token, which every member then runs with its own key.
      const usable = run.followers.length > 0 ? pending.length - 1 : pending.length;
      const take = Math.min(usable, room);
      if (take === 0) continue;
      const { seed, step, group, member } = spec;
      const complete = take === pending.length;
      const key = complete ? { seed, step, group, member, position: stream.ids.length } : null;
      work.push({ slot: run.slot, start: run.cached, tokens: pending.slice(0, take), key });
      who.push(run);
      room -= take;
    }
    return { work, who };
  }

  function takeCached(run: Running, count: number): void {
    run.member.pending.splice(0, count);
    run.cached += count;
    if (run.followers.length > 0 && run.member.pending.length === 1) {
      for (const follower of run.followers) {
        sampler.fork(run.slot, follower.slot, run.cached);
        follower.member.pending.splice(0, run.cached);
        follower.cached = run.cached;
      }
      run.followers = [];
    }
  }

  /** Appends what was drawn; the reason if it ended the turn. */
  function append(run: Running, drawn: Drawn): TurnRecord['stop'] | null {
    tokens += 1;
    return addDrawn(run.member, drawn, text, settings);
  }

  /** Ends turns side by side; members whose service failed start again or are recorded as such. */
  function endTurns(stopped: readonly { run: Running; stop: TurnRecord['stop'] }[]): void {
    for (const { run, stop } of stopped) {
      const work = async (): Promise<void> => {
        try {
          await endTurn(run.member, stop, environment, text, settings);
          if (run.member.done) await finish(run);
        } catch (error) {
          if (!isInfrastructure(error)) throw error;
          await recover(run, error);
        }
      };
      away.set(
        run,
        ask(work, () => away.delete(run)),
      );
    }
  }

  /**
   * Waits for an environment where nothing else is to be done; one that answers at once is not left behind, nor one that
   * usually answers in less time than a pass takes: its member shares the next pass. Nobody is waited for twice.
   */
  async function settle(idle: boolean): Promise<void> {
    const answers = [...away.values(), ...starting.values()];
    const fresh = answers.filter((answer) => !waitedFor.has(answer));
    if (idle && answers.length > 0) await Promise.race(answers);
    else if (fresh.length > 0) {
      for (const answer of fresh) waitedFor.add(answer);
      const patience = 2 * answerMs <= passMs ? 2 * answerMs : 0;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const soon = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, patience);
      });
      await Promise.race([Promise.all(fresh), soon]);
      clearTimeout(timer);
    }
    if (failure) throw failure.error;
  }

  /** One pass of whatever is ready. */
  async function pass(work: readonly SlotWork[], who: readonly Running[]): Promise<void> {
    const since = now();
    const drawn = await sampler.step(work);
    passMs = now() - since;
    for (const [i, run] of who.entries()) takeCached(run, work[i]!.tokens.length);
    endTurns(
      who.flatMap((run, i) => {
        const stop = drawn[i] ? append(run, drawn[i]) : null;
        return stop === null ? [] : [{ run, stop }];
      }),
    );
  }

  /**
   * Decodes until a turn ends or an environment has answered, with steps sent ahead of their results. What was drawn
   * after a stop is dropped; the other members keep theirs, because a draw depends on its own member alone.
   */
  async function decodeAhead(work: readonly SlotWork[], who: readonly Running[]): Promise<void> {
    const decoding = sampler.decode!(
      work.map(({ slot, start, tokens: [token], key }) => ({ slot, position: start, token: token!, key: key! })),
    );
    const room = Math.max(...who.map(({ member }) => settings.maxCompletionTokens - completionLength(member)));
    // At least one, so that a full cache is an error and not an endless loop.
    let left = Math.max(1, Math.min(decoding.left, room));
    const stopped: { run: Running; stop: TurnRecord['stop'] }[] = [];
    const flight: ReturnType<typeof decoding.send>[] = [];
    const active = new Set(who);
    const before = answered;
    const since = now();
    let steps = 0;
    let dropped = 0;
    while (true) {
      while (stopped.length === 0 && answered === before && flight.length < sendsAhead && left > 0) {
        const count = Math.min(stepsASend, left);
        flight.push(decoding.send(count));
        left -= count;
      }
      const results = await flight.shift();
      if (!results) break;
      steps += results.length;
      for (const step of results) {
        for (const [i, run] of who.entries()) {
          if (!active.has(run)) {
            dropped += 1;
            continue;
          }
          takeCached(run, 1);
          const stop = append(run, finiteDraw(step[i] ?? null, run));
          if (stop === null) continue;
          active.delete(run);
          stopped.push({ run, stop });
        }
      }
    }
    passMs = (now() - since) / Math.max(1, steps);
    if (dropped > 0) ports.onDropped?.(dropped);
    endTurns(stopped);
  }

  async function finish(run: Running): Promise<void> {
    const { member, place } = run;
    const verdict = await environment.verify(member.sessionId, member.finalText, member.invalidDispatches);
    await environment.close(member.sessionId);
    record(run, toEpisode(member, settings, { verdict }, (now() - member.startedAt) / 1000), place);
  }

  function record(run: Running, episode: Episode, [group, index]: Running['place']): void {
    episodes[group]![index] = episode;
    running.splice(running.indexOf(run), 1);
    free.push(run.slot);
    free.sort((a, b) => a - b);
    finished += 1;
    ports.onProgress?.(finished, total, tokens);
  }

  async function recover(run: Running, error: EnvError): Promise<void> {
    await environment.close(run.member.sessionId).catch(() => {});
    if (run.attempt < maxAttempts) {
      try {
        const again = await begin(run.member.spec, run.slot, run.attempt + 1, run.place);
        running[running.indexOf(run)] = again;
        ports.onDropped?.(run.member.stream.mask.reduce((sum: number, bit) => sum + bit, 0));
        return;
      } catch (second) {
        if (!isInfrastructure(second)) throw second;
      }
    }
    const reason = `${error.code}: ${error.message}`;
    record(
      run,
      toEpisode(run.member, settings, { infrastructure: reason }, (now() - run.member.startedAt) / 1000),
      run.place,
    );
  }

  while (finished < total) {
    if (startGroups() || running.length === 0) await settle(running.length === 0);
    if (running.length === 0 && starting.size === 0) {
      const message = `starting group ${nextGroup}: it has ${groups[nextGroup]!.length} members, the sampler ${sampler.shape.slots} slots; use more slots.`;
      throw new EnvError('group-too-large', message);
    }
    const { work, who } = planPass();
    const single = work.every(({ key, tokens: own }) => key !== null && own.length === 1);
    if (work.length > 0) await (sampler.decode && single ? decodeAhead : pass)(work, who);
    await settle(work.length === 0);
  }
  return episodes;
}
