// One rollout while it is being made: its token stream, its session, and what it wants from the next pass.
// Not the loop over rollouts (collect.ts). Invariant: the stream only grows, and what happens to a member depends on its
// own tokens and its own session alone.
import type { EnvironmentPort, Task, ToolSpec } from '../environments/port.ts';
import { AuditError } from '../lib/errors.ts';
import type { Text } from '../model/text.ts';
import type { Episode, ToolCallRecord, TurnRecord, Verdict } from './episode.ts';
import type { Drawn } from './sampler.ts';
import { appendSampled, appendSuffix, createStream, type TokenStream, toEpisodeFields } from './stream.ts';
import { endsInReasoning, parseTurn } from './tool-calls.ts';

/** What one rollout is of; the keys of its random numbers are (seed, step, group, member). */
export interface MemberSpec {
  task: Task;
  step: number;
  group: number;
  member: number;
  seed: number;
}

export interface RolloutSettings {
  temperature: number;
  /** Retained tokens after the prompt, observations and framing included. */
  maxCompletionTokens: number;
  /** Turns whose tool calls are dispatched. */
  maxToolRounds: number;
  enableThinking: boolean;
  /** What the model is shown for a call that is not dispatched (malformed, unknown tool). */
  invalidCallObservation: string;
  /** SHA-256 of the sampling adapter, or `base`. */
  policy: string;
}

/** The record's text for an observation that did not fit the budget; the call has had its effect. */
export const droppedObservation = 'dropped (budget)';

export interface Member {
  readonly spec: MemberSpec;
  readonly sessionId: string;
  readonly stream: TokenStream;
  /** Tokens whose keys and values are not cached yet. */
  pending: number[];
  done: boolean;
  finalText: string;
  invalidDispatches: number;
  readonly turns: TurnRecord[];
  capped: boolean;
  startedAt: number;
}

interface Internals {
  turnStart: number;
  rounds: number;
  toolNames: string[];
}

const internals = new WeakMap<Member, Internals>();

/** Starts a member on an open session's prompt ids. */
export function startMember(
  spec: MemberSpec,
  sessionId: string,
  promptIds: readonly number[],
  tools: readonly ToolSpec[],
  now: number,
): Member {
  const member: Member = {
    spec,
    sessionId,
    stream: createStream(promptIds),
    pending: [...promptIds],
    done: false,
    finalText: '',
    invalidDispatches: 0,
    turns: [],
    capped: false,
    startedAt: now,
  };
  internals.set(member, { turnStart: promptIds.length, rounds: 0, toolNames: tools.map((tool) => tool.function.name) });
  return member;
}

/** Tokens after the prompt so far, observations and framing included. */
export const completionLength = (member: Member) => member.stream.ids.length - member.stream.promptLength;

/** Adds a drawn token. Returns how the turn ended, or null if it goes on. */
export function addDrawn(
  member: Member,
  drawn: Drawn,
  text: Text,
  settings: RolloutSettings,
): TurnRecord['stop'] | null {
  appendSampled(member.stream, drawn.id, drawn.logprob, drawn.truncatedLogprob, drawn.entropy);
  member.pending.push(drawn.id);
  if (text.stopIds.includes(drawn.id)) return 'stop';
  if (text.endIds.includes(drawn.id)) return 'end';
  return completionLength(member) >= settings.maxCompletionTokens ? 'length' : null;
}

/** Dispatches the calls of a turn in order; a call that cannot be dispatched gets the fixed observation. */
async function dispatchCalls(
  member: Member,
  calls: ToolCallRecord[],
  env: EnvironmentPort,
  settings: RolloutSettings,
): Promise<void> {
  for (const call of calls) {
    if (call.status !== 'ok') {
      member.invalidDispatches += 1;
      call.observation = settings.invalidCallObservation;
      continue;
    }
    const observation = await env.call(member.sessionId, call.name!, call.argumentsJson!);
    call.dispatched = true;
    call.observation = observation.content;
    call.environmentError = observation.error;
  }
}

/**
 * Ends the current turn: parses it, dispatches its calls, appends the suffix or drops it for lack of budget.
 * `<|endoftext|>` ends the episode; so do a turn without calls, the round limit, and a spent budget.
 */
export async function endTurn(
  member: Member,
  stop: TurnRecord['stop'],
  env: EnvironmentPort,
  text: Text,
  settings: RolloutSettings,
): Promise<void> {
  const state = internals.get(member)!;
  const { stream } = member;
  const end = stream.ids.length;
  const parsed = parseTurn({
    ids: stream.ids.slice(state.turnStart),
    text,
    knownTools: state.toolNames,
    thinkingOpenedByPrompt: endsInReasoning(stream.ids.slice(0, state.turnStart), text),
  });
  member.finalText = parsed.finalText;
  const calls = parsed.calls.map(
    ({ span, status, name, argumentsJson }): ToolCallRecord => ({
      span: [span[0] + state.turnStart, span[1] + state.turnStart],
      status,
      name,
      argumentsJson,
      observation: null,
      dispatched: false,
      dropped: false,
      environmentError: false,
    }),
  );
  member.turns.push({ span: [state.turnStart, end], stop, calls });
  if (stop === 'length') member.capped = true;
  if (stop === 'end' || calls.length === 0 || state.rounds >= settings.maxToolRounds) {
    member.done = true;
    return;
  }
  state.rounds += 1;
  await dispatchCalls(member, calls, env, settings);
  const suffix = text.toolSuffixParts(
    calls.map((call) => call.observation!),
    settings.enableThinking,
  );
  const sources = suffix.sources.map((source) => {
    if (source === 'template' || source === 'observation') return source;
    throw new AuditError(
      'suffix-source',
      `building the suffix of ${member.sessionId}: found source ${source}; wanted template or observation.`,
    );
  });
  if (completionLength(member) + suffix.ids.length > settings.maxCompletionTokens) {
    for (const call of calls) {
      if (call.dispatched) call.observation = droppedObservation;
      call.dropped = true;
    }
    member.capped = true;
    member.done = true;
    return;
  }
  appendSuffix(stream, { ids: suffix.ids, sources });
  member.pending.push(...suffix.ids);
  state.turnStart = stream.ids.length;
  if (completionLength(member) >= settings.maxCompletionTokens) {
    member.capped = true;
    member.done = true;
  }
}

/** The finished record; `verdict` null with the reason where the environment failed. */
export function toEpisode(
  member: Member,
  settings: RolloutSettings,
  outcome: { verdict: Verdict } | { infrastructure: string },
  seconds: number,
): Episode {
  const { spec } = member;
  return {
    schema: 'shaderl.episode/1',
    taskId: spec.task.id,
    sessionId: member.sessionId,
    step: spec.step,
    group: spec.group,
    member: spec.member,
    seed: spec.seed,
    policy: settings.policy,
    temperature: settings.temperature,
    ...toEpisodeFields(member.stream, `rollout ${spec.member} of group ${spec.group}, step ${spec.step}`),
    turns: member.turns,
    capped: member.capped,
    // Sampling stops at the budget, so nothing is ever sampled and then thrown away.
    discardedTokens: 0,
    verdict: 'verdict' in outcome ? outcome.verdict : null,
    infrastructure: 'infrastructure' in outcome ? outcome.infrastructure : null,
    seconds,
  };
}
