// What an audit of one rollout is told from outside the record: the task, the prompt, the tokenizer, the settings.
// Not taken from the episode: everything here has another source. Invariant: plain data and pure functions.
import type { RecordedCall, Replay } from '../environments/german-replay.ts';
import type { Task } from '../environments/port.ts';
import type { Text } from '../model/text.ts';
import type { Verdict } from '../rollout/episode.ts';
import type { SuffixRule } from './suffix.ts';

/** An independent second implementation of the environment (replayEpisode for the German task). */
export type Replayer = (
  task: Task,
  calls: readonly RecordedCall[],
  finalText: string,
  invalidDispatches: number,
  recorded?: Verdict,
) => Replay;

export interface AuditSettings {
  /** Retained tokens after the prompt, observations and framing included. */
  maxCompletionTokens: number;
  /** Turns whose tool calls are dispatched. */
  maxToolRounds: number;
  enableThinking: boolean;
  /** What the model is shown for a call that is not dispatched. */
  invalidCallObservation: string;
}

/** Values that every episode of a step must name; what is left out is not checked. */
export interface ExpectedLabels {
  temperature?: number;
  seed?: number;
  step?: number;
  policy?: string;
}

export interface AuditContext {
  text: Text;
  task: Task;
  /** The prompt, rendered from the task's messages and tools and not from the record. */
  promptIds: readonly number[];
  /** Names of the tools that may be called. */
  tools: readonly string[];
  /** Ids that end a turn, and ids that end the episode. */
  stopIds: readonly number[];
  endIds: readonly number[];
  settings: AuditSettings;
  /** Null where there is no second implementation: verdicts are then checked for sense alone. */
  replay: Replayer | null;
  expected?: ExpectedLabels;
  /** Made once for many episodes by suffixRule(); made anew if left out. */
  suffixes?: SuffixRule;
}

/** What the record writes for an observation that did not fit the budget. */
export const DROPPED = 'dropped (budget)';
