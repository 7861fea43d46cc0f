// Walks an episode's ids from the prompt to the end and finds out what each token must be: prompt, sampled run, suffix.
// Not a repair: where the ids leave the path it says so and goes on at the next recorded turn.
// Invariant: turns, calls and dispatches are read from the ids; the record is only compared with them.
import type { Episode, ServerLogEntry, TokenSource, ToolCallRecord, TurnRecord } from '../rollout/episode.ts';
import { type AuditContext, DROPPED } from './context.ts';
import type { Report } from './findings.ts';
import { endsInThinking, type ReadCall, readTurn } from './read-turn.ts';
import { suffixRule } from './suffix.ts';

/** What a token must be; `context`: template or observation; null: not known, because a finding lies before it. */
export type ExpectedSource = TokenSource | 'context' | null;

/** A call that the environment must have got, in order. */
export interface DispatchedCall {
  call: ReadCall;
  record: ToolCallRecord | undefined;
}

export interface Walk {
  expected: ExpectedSource[];
  dispatched: DispatchedCall[];
  invalidDispatches: number;
  finalText: string;
  /** False if some part of the ids could not be read, so that what follows from all of them is not known. */
  complete: boolean;
}

const show = (value: unknown) => JSON.stringify(value) ?? 'nothing';

/** The first index from which `found` differs from `wanted`, which starts at `from` of it; -1 if it does not. */
function firstDifference(found: readonly number[], wanted: readonly number[], from: number): number {
  const i = wanted.findIndex((id, offset) => found[from + offset] !== id);
  return i < 0 ? -1 : from + i;
}

export function walkEpisode(episode: Episode, context: AuditContext, report: Report): Walk {
  const { ids, turns } = episode;
  const { text, promptIds, settings, stopIds, endIds } = context;
  const suffixes = context.suffixes ?? suffixRule(text, settings.enableThinking);
  const log = episode.verdict?.log ?? [];
  const budgetEnd = promptIds.length + settings.maxCompletionTokens;
  const expected: ExpectedSource[] = ids.map((_, i) => (i < promptIds.length ? 'prompt' : null));
  const walk: Walk = { expected, dispatched: [], invalidDispatches: 0, finalText: '', complete: true };
  checkPrompt(episode, promptIds, report);
  if (ids.length > budgetEnd) {
    report('budget', budgetEnd, `${ids.length - promptIds.length} tokens`, `${settings.maxCompletionTokens} at most`);
  }

  let capped = false;
  let rounds = 0;
  let at = promptIds.length;
  let turn = 0;
  for (; ; turn++) {
    const record = turns[turn];
    // A service that failed at once leaves a prompt without a turn.
    if (episode.verdict === null && turn === 0 && turns.length === 0 && at >= ids.length) break;
    const ending = ids.findIndex((id, i) => i >= at && (stopIds.includes(id) || endIds.includes(id)));
    const end = Math.min(ending < 0 ? ids.length : ending + 1, budgetEnd, ids.length);
    if (end <= at) {
      report('turn-span', at, 'no sampled token', 'a turn of at least one');
      walk.complete = false;
      break;
    }
    const last = ids[end - 1]!;
    const stop = stopIds.includes(last) ? 'stop' : endIds.includes(last) ? 'end' : 'length';
    checkTurn(record, at, end, stop, end === budgetEnd, report);
    capped ||= stop === 'length';
    expected.fill('sampled', at, end);

    const reading = readTurn(
      ids.slice(at, stop === 'length' ? end : end - 1),
      text,
      context.tools,
      endsInThinking(ids.slice(0, at), text, stopIds),
    );
    walk.finalText = reading.finalText;
    const calls = reading.calls.map((call): ReadCall => ({ ...call, span: [call.span[0] + at, call.span[1] + at] }));
    checkCalls(record, calls, at, report);
    const entered = stop !== 'end' && calls.length > 0 && rounds < settings.maxToolRounds;
    if (!entered) {
      for (const [i, call] of calls.entries()) {
        checkOutcome(record?.calls[i], call, { dispatched: false, dropped: false, observation: null }, report);
      }
      if (end < ids.length) report('after-end', end, 'more tokens', 'none: the episode ends with this turn');
      break;
    }
    rounds += 1;
    // A failed service can stop an episode between a call and its answer.
    if (episode.verdict === null && end === ids.length) break;

    const firstOfLog = walk.dispatched.length;
    const observations = calls.map((call, i) => {
      const kept = record?.calls[i];
      if (call.status !== 'ok') {
        walk.invalidDispatches += 1;
        return settings.invalidCallObservation;
      }
      const entry = log[walk.dispatched.length];
      walk.dispatched.push({ call, record: kept });
      return (kept?.dropped ? entry?.observation : kept?.observation) ?? entry?.observation ?? '';
    });
    const suffix = suffixes.suffixOf(observations);
    const dropped = end + suffix.ids.length > budgetEnd;
    let entry = firstOfLog;
    for (const [i, call] of calls.entries()) {
      const dispatched = call.status === 'ok';
      const answer = dispatched ? answerOf(log[entry++], dropped) : settings.invalidCallObservation;
      checkOutcome(record?.calls[i], call, { dispatched, dropped, observation: answer }, report);
    }
    if (dropped) {
      capped = true;
      if (end < ids.length) report('after-end', end, 'more tokens', 'none: the observation does not fit the budget');
      break;
    }
    const difference = firstDifference(ids, suffix.ids, end);
    if (difference >= 0) {
      const found = difference < ids.length ? show(ids[difference]) : 'the end';
      report('suffix', difference, found, `${suffix.ids[difference - end]}, as the template puts it between turns`);
      const next = turns[turn + 1]?.span[0];
      walk.complete = next !== undefined && next > end && next < ids.length;
      if (!walk.complete) break;
      at = next!;
      continue;
    }
    for (const [i, source] of suffix.sources.entries()) expected[end + i] = source;
    at = end + suffix.ids.length;
    if (at < budgetEnd) continue;
    capped = true;
    break;
  }
  for (const extra of turns.slice(turn + 1)) {
    report('turn-span', extra.span[0], `a turn at ${show(extra.span)}`, 'none: the ids hold no such turn');
  }
  if (walk.complete && episode.verdict !== null && episode.capped !== capped) {
    report('capped', null, `capped ${episode.capped}`, `${capped}`);
  }
  return walk;
}

function answerOf(entry: ServerLogEntry | undefined, dropped: boolean): string | null | undefined {
  return dropped ? DROPPED : entry?.observation;
}

function checkPrompt(episode: Episode, promptIds: readonly number[], report: Report): void {
  const { ids, promptLength } = episode;
  if (promptLength !== promptIds.length) {
    report('prompt-length', Math.min(promptLength, promptIds.length), `${promptLength}`, `${promptIds.length} tokens`);
  }
  const difference = firstDifference(ids, promptIds, 0);
  if (difference < 0) return;
  report('prompt', difference, show(ids[difference]), `${promptIds[difference]}, as the task's prompt is rendered`);
}

function checkTurn(
  record: TurnRecord | undefined,
  start: number,
  end: number,
  stop: TurnRecord['stop'],
  full: boolean,
  report: Report,
): void {
  if (!record) report('turn-span', start, 'no recorded turn', `one at [${start}, ${end})`);
  else {
    if (record.span[0] !== start) report('turn-span', record.span[0], `a start at ${record.span[0]}`, `${start}`);
    if (record.span[1] !== end)
      report('turn-span', Math.min(record.span[1], end), `an end at ${record.span[1]}`, `${end}`);
    if (record.stop !== stop) report('stop-reason', end - 1, show(record.stop), `${show(stop)}, as the last id says`);
  }
  if (stop === 'length' && !full) report('stop-reason', end - 1, 'no stop id', 'one, or a turn that fills the budget');
}

/** Compares the recorded calls of a turn with those read from its ids. */
function checkCalls(record: TurnRecord | undefined, calls: readonly ReadCall[], start: number, report: Report): void {
  const recorded = record?.calls ?? [];
  for (let i = 0; i < Math.max(calls.length, recorded.length); i++) {
    const read = calls[i];
    const kept = recorded[i];
    if (!read || !kept) {
      const index = read?.span[0] ?? kept?.span[0] ?? start;
      report('tool-call', index, `${recorded.length} recorded calls`, `${calls.length}, as the ids have them`);
      return;
    }
    for (const field of ['span', 'status', 'name', 'argumentsJson'] as const) {
      if (show(kept[field]) === show(read[field])) continue;
      report('tool-call', read.span[0], `${field} ${show(kept[field])}`, `${show(read[field])}, as sampled`);
    }
  }
}

/** Compares what the record says became of a call with what had to. `observation` undefined: the log has none. */
function checkOutcome(
  record: ToolCallRecord | undefined,
  { span }: ReadCall,
  wanted: { dispatched: boolean; dropped: boolean; observation: string | null | undefined },
  report: Report,
): void {
  if (!record) return;
  const { dispatched, dropped, observation } = wanted;
  if (record.dispatched !== dispatched) report('dispatch', span[0], `dispatched ${record.dispatched}`, `${dispatched}`);
  if (record.dropped !== dropped) {
    report('dropped', span[0], `dropped ${record.dropped}`, `${dropped}, by the token budget`);
  }
  if (observation !== undefined && record.observation !== observation) {
    report('observation', span[0], `the observation ${show(record.observation)}`, show(observation));
  }
  if (!dispatched && record.environmentError)
    report('observation', span[0], 'an environment error', 'none: not dispatched');
}
