// Rollouts for the audit's tests: real sessions of the German environment, the real Qwen3 tokenizer, scripted turns.
// Not the rollout code: a small roller of its own. Log-probs come from a toy policy, a pure function of the prefix, so
// that a changed id changes every later log-prob as it would with a model.
import type { AuditContext } from '../../src/audit/context.ts';
import type { Finding } from '../../src/audit/findings.ts';
import { germanContexts } from '../../src/audit/german.ts';
import { auditEpisode } from '../../src/audit.ts';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { INVALID_CALL_OBSERVATION } from '../../src/environments/german-expert.ts';
import { trainTasks } from '../../src/environments/german-task.ts';
import type { Task } from '../../src/environments/port.ts';
import type { Text } from '../../src/model/text.ts';
import type { Episode, TokenSource, ToolCallRecord } from '../../src/rollout/episode.ts';

export const SETTINGS = {
  maxCompletionTokens: 400,
  maxToolRounds: 3,
  enableThinking: true,
  invalidCallObservation: INVALID_CALL_OBSERVATION,
};

/** One sampled turn: its text, and the calls that stand in it (as the record must have them). */
export interface ScriptedTurn {
  text: string;
  calls?: Pick<ToolCallRecord, 'status' | 'name' | 'argumentsJson'>[];
  /** What ends the turn; <|im_end|> by default, null for none. */
  stop?: '<|im_end|>' | '<|endoftext|>' | null;
  /** What a grader may see, where it is not the text after </think>. */
  final?: string;
}

/** A log-prob in (-4, 0) as an f32, by FNV-1a over the prefix and the token. */
export function toyLogprobs(ids: readonly number[]): Float32Array {
  let hash = 0x811c9dc5;
  return Float32Array.from(ids, (id) => {
    hash = Math.imul(hash ^ id, 0x01000193) >>> 0;
    return -(hash % 4_000_000) / 1_000_000 - 1e-3;
  });
}

/** The toy policy's log-probs of an episode's sampled tokens, in order: what a recomputation gives. */
export function recompute(episode: Episode): Float32Array {
  const all = toyLogprobs(episode.ids);
  return all.filter((_, i) => episode.mask[i] === 1);
}

export const call = (name: string, argumentsJson: string) => ({ status: 'ok' as const, name, argumentsJson });
export const block = (name: string, argumentsJson: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${argumentsJson}}\n</tool_call>`;

export const TASK = trainTasks(7, 1)[0]!;

/** A flawless script for a task: two lookups at once, the calculation, the answer. */
export function script(task: Task): ScriptedTurn[] {
  const { left, right, operation, table } = task.payload as {
    left: string;
    right: string;
    operation: string;
    table: Record<string, number>;
  };
  const [a, b] = [table[left]!, table[right]!];
  const result = operation === '+' ? a + b : operation === '-' ? a - b : a * b;
  const lookups = [left, right].map((good) => ['nachschlagen', `{"schluessel": "${good}"}`] as const);
  const sum = ['rechner', `{"ausdruck": "${a} ${operation} ${b}"}`] as const;
  const thinking = '<think>\nErst die Werte.\n</think>\n\n';
  return [
    { text: thinking + lookups.map((one) => block(...one)).join('\n'), calls: lookups.map((one) => call(...one)) },
    { text: thinking + block(...sum), calls: [call(...sum)] },
    { text: `${thinking}Antwort: ${result}` },
  ];
}

export interface RollOptions {
  task?: Task;
  settings?: Partial<typeof SETTINGS>;
  label?: Partial<Pick<Episode, 'step' | 'group' | 'member' | 'seed' | 'policy'>>;
}

export interface Rolled {
  episode: Episode;
  context: AuditContext;
}

/** Plays scripted turns in a new session and writes the record down. */
export async function roll(text: Text, turns: readonly ScriptedTurn[], options: RollOptions = {}): Promise<Rolled> {
  const task = options.task ?? TASK;
  const settings = { ...SETTINGS, ...options.settings };
  const environment = createGermanEnvironment();
  const session = await environment.open(task);
  const { messages, tools, sessionId } = session;
  const ids = text.renderPrompt({ messages, tools, enableThinking: settings.enableThinking });
  const promptLength = ids.length;
  const room = () => settings.maxCompletionTokens - (ids.length - promptLength);
  const sources: TokenSource[] = ids.map(() => 'prompt');
  const records: Episode['turns'] = [];
  let invalidDispatches = 0;
  let capped = false;
  let finalText = '';
  for (const [round, turn] of turns.entries()) {
    const start = ids.length;
    const stop = turn.stop === undefined ? '<|im_end|>' : turn.stop;
    const sampled = text.encodeTrusted(turn.text + (stop ?? '')).slice(0, room());
    ids.push(...sampled);
    sources.push(...sampled.map((): TokenSource => 'sampled'));
    const last = ids.at(-1)!;
    const ended = text.stopIds.includes(last) ? 'stop' : text.endIds.includes(last) ? 'end' : 'length';
    if (ended === 'length') capped = true;
    finalText = turn.final ?? (turn.calls ? '' : (turn.text.split('</think>').at(-1) ?? '').trim());
    const opens = blocksOf(text, ids, start, ids.length - (ended === 'length' ? 0 : 1));
    const calls = (turn.calls ?? []).map(
      (one, i): ToolCallRecord => ({
        ...one,
        span: opens[i] ?? [start, start],
        observation: null,
        dispatched: false,
        dropped: false,
        environmentError: false,
      }),
    );
    records.push({ span: [start, ids.length], stop: ended, calls });
    if (ended === 'end' || calls.length === 0 || round >= settings.maxToolRounds) break;
    for (const one of calls) {
      if (one.status !== 'ok') {
        invalidDispatches += 1;
        one.observation = settings.invalidCallObservation;
        continue;
      }
      const answer = await environment.call(sessionId, one.name!, one.argumentsJson!);
      Object.assign(one, { dispatched: true, observation: answer.content, environmentError: answer.error });
    }
    const suffix = text.toolSuffixParts(
      calls.map((one) => one.observation!),
      settings.enableThinking,
    );
    if (suffix.ids.length > room()) {
      for (const one of calls) {
        one.dropped = true;
        if (one.dispatched) one.observation = 'dropped (budget)';
      }
      capped = true;
      break;
    }
    ids.push(...suffix.ids);
    sources.push(...suffix.sources);
    if (room() > 0) continue;
    capped = true;
    break;
  }
  const logprobs = Array.from(toyLogprobs(ids), (value, i) => (sources[i] === 'sampled' ? value : null));
  const episode: Episode = {
    schema: 'shaderl.episode/1',
    taskId: task.id,
    sessionId,
    step: 1,
    group: 0,
    member: 0,
    seed: 42,
    policy: 'base',
    temperature: 0.6,
    promptLength,
    ids,
    sources,
    mask: sources.map((source) => (source === 'sampled' ? 1 : 0)),
    logprobs,
    truncatedLogprobs: logprobs.map((value) => (value === null ? null : Math.fround(value / 2))),
    turns: records,
    capped,
    discardedTokens: 0,
    verdict: await environment.verify(sessionId, finalText, invalidDispatches),
    infrastructure: null,
    seconds: 0.5,
    ...options.label,
  };
  return { episode, context: germanContexts(text, settings)(task) };
}

/** [start, end) of the blocks of a turn: from <tool_call> to </tool_call>, or to the end where that is missing. */
function blocksOf(text: Text, ids: readonly number[], from: number, to: number): [number, number][] {
  const [open, close] = [text.addedTokenId('<tool_call>')!, text.addedTokenId('</tool_call>')!];
  const spans: [number, number][] = [];
  for (let i = from; i < to; i++) {
    if (ids[i] !== open) continue;
    const end = ids.findIndex((id, at) => at > i && at < to && id === close);
    spans.push([i, end < 0 ? to : end + 1]);
  }
  return spans;
}

/** Code and index of findings. */
export const places = (findings: readonly Finding[]): [string, number | null][] =>
  findings.map(({ code, index }) => [code, index]);

/** Findings of a rollout after a change to a copy of its record. */
export function findingsAfter({ episode, context }: Rolled, change: (episode: Episode) => void) {
  const changed = structuredClone(episode);
  change(changed);
  return places(auditEpisode(changed, context));
}

/** Puts `ids` in the place of [from, to) in every list, as a careless rollout would, and moves what lies behind. */
export function splice(episode: Episode, from: number, to: number, ids: number[]): void {
  const shift = ids.length - (to - from);
  const like = Math.min(from, episode.ids.length - 1);
  const list = <T>(values: T[]) => values.splice(from, to - from, ...ids.map(() => values[like]!));
  list(episode.sources);
  list(episode.mask);
  list(episode.logprobs);
  list(episode.truncatedLogprobs);
  episode.ids.splice(from, to - from, ...ids);
  const move = (span: [number, number]) => {
    if (span[0] >= to) span[0] += shift;
    if (span[1] >= to) span[1] += shift;
  };
  for (const turn of episode.turns) {
    move(turn.span);
    for (const one of turn.calls) move(one.span);
  }
}

/** Ends every list at `length` and keeps the first `turns` turns. */
export function cut(episode: Episode, length: number, turns: number): void {
  const { ids, sources, mask, logprobs, truncatedLogprobs } = episode;
  for (const list of [ids, sources, mask, logprobs, truncatedLogprobs]) list.length = length;
  episode.turns.length = turns;
}
