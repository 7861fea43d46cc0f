// Puts one evaluated sample into exactly one outcome class, so that format failures, wrong answers, cut-off replies and
// broken services never share one zero. Not a metric: rates are made from these classes elsewhere.
// Invariant: a failed service is `infrastructure`, whatever else the record says.
import type { Episode } from '../rollout/episode.ts';
import type { ExtractedAnswer } from './answers.ts';

/** Share of samples lost to a failed service above which an evaluation is incomplete, whatever its rate. */
export const INCOMPLETE_SHARE = 0.05;

/** Says that too many samples were lost for the rate to stand for all items; null where they were few enough. */
export function incompleteNote(lost: number, samples: number): string | null {
  if (!(lost > INCOMPLETE_SHARE * samples)) return null;
  const share = ((100 * lost) / samples).toFixed(1);
  return (
    `Incomplete: a failed service lost ${lost} of ${samples} samples (${share} %, more than ` +
    `${100 * INCOMPLETE_SHARE} %), so the rates are those of the others alone. Evaluate again with a working service.`
  );
}

export const OUTCOMES = ['correct', 'wrong', 'no_answer', 'contradictory', 'truncated', 'infrastructure'] as const;
export type Outcome = (typeof OUTCOMES)[number];

export interface MathSample {
  extracted: ExtractedAnswer;
  /** Canonical decimal of the gold answer. */
  gold: string;
  /** The reply hit a token limit. */
  capped: boolean;
  /** Length of the NFC-normalised reply, to see whether a cut went through the number. */
  replyLength: number;
  /** What failed outside the policy, or null. */
  infrastructure: string | null;
}

/**
 * The class of one math reply. A capped reply counts as answered only if it stated its answer by a marked rule and went
 * on after it: a last number of an unfinished calculation, or a number that the limit may have cut, is `truncated`.
 */
export function classify(sample: MathSample): Outcome {
  const { extracted, capped } = sample;
  if (sample.infrastructure !== null) return 'infrastructure';
  const cutNumber = extracted.span !== null && extracted.span[1] >= sample.replyLength;
  if (capped && (extracted.value === null || extracted.rule === 'last-number' || cutNumber)) return 'truncated';
  if (extracted.value === null) return 'no_answer';
  if (extracted.contradictory) return 'contradictory';
  return extracted.value === sample.gold ? 'correct' : 'wrong';
}

/** Tool failures of one episode by class. Malformed calls are the policy's; `environment` ones the service reported. */
export interface ToolErrorClasses {
  environment: number;
  unknown_tool: number;
  invalid_json: number;
  missing_arguments: number;
  unclosed: number;
  /** Observations that did not fit into the token budget. */
  dropped: number;
}

/** Counts the tool failures of an episode; one call can be both an environment error and dropped. */
export function countToolErrors(episode: Episode): ToolErrorClasses {
  const counts: ToolErrorClasses = {
    environment: 0,
    unknown_tool: 0,
    invalid_json: 0,
    missing_arguments: 0,
    unclosed: 0,
    dropped: 0,
  };
  for (const call of episode.turns.flatMap((turn) => turn.calls)) {
    if (call.status !== 'ok') counts[call.status] += 1;
    if (call.environmentError) counts.environment += 1;
    if (call.dropped) counts.dropped += 1;
  }
  return counts;
}

/** The class of one agent episode: `correct` is strict success, and a capped failure is `truncated`. */
export function classifyEpisode(episode: Episode): Outcome {
  if (episode.verdict === null || episode.infrastructure !== null) return 'infrastructure';
  if (episode.verdict.strict) return 'correct';
  if (episode.capped) return 'truncated';
  return episode.verdict.answer === null ? 'no_answer' : 'wrong';
}
