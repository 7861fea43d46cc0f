// A sampled turn as both APIs show it: content, reasoning, tool calls.
// Not a repair: a block that is no good call stays text. Invariant: every sampled id is in `ids`, and `rawText` is the
// text of all of them but the stop token; nothing that the model wrote is lost.
import type { Text } from '../model/text.ts';
import { endsInReasoning, parseTurn } from '../rollout/tool-calls.ts';
import { tagTurn } from '../rollout/turn-tags.ts';
import { beforeStop } from './stop-texts.ts';

export interface AnswerCall {
  /** The same in every repetition of the request, and unique in a conversation: it names the call's place in it. */
  id: string;
  name: string;
  argumentsJson: string;
}

export interface Answer {
  promptIds: readonly number[];
  ids: readonly number[];
  logprobs: readonly number[];
  cachedTokens: number;
  seed: number;
  /** Text outside reasoning and good calls. Blocks that are no good call follow it as they were written. */
  content: string;
  reasoning: string | null;
  /** Sampled tokens of the reasoning, its tags among them. */
  reasoningTokens: number;
  calls: AnswerCall[];
  rawText: string;
  finish: 'stop' | 'length' | 'tool_calls';
}

/** Tokens from each <think> (or the start, if the prompt opened it) to its </think> or the end. */
function countReasoning(ids: readonly number[], opened: boolean, text: Text): number {
  let count = 0;
  let from: number | null = opened ? 0 : null;
  for (const { kind, firstToken, endToken } of tagTurn(ids, text).tags) {
    if (kind === 'think') from ??= firstToken;
    if (kind !== 'think-end' || from === null) continue;
    count += endToken - from;
    from = null;
  }
  return from === null ? count : count + ids.length - from;
}

/**
 * Reads a sampled turn. `toolNames` are the names that may be called; [] where the request has no tools. `stops` are the
 * stop texts of the request, one of which ended the turn if `stopped`.
 */
export function readAnswer(
  sampled: Pick<Answer, 'promptIds' | 'ids' | 'logprobs' | 'cachedTokens' | 'seed'>,
  toolNames: readonly string[],
  text: Text,
  { stops, stopped }: { stops: readonly string[]; stopped: boolean } = { stops: [], stopped: false },
): Answer {
  const { promptIds, ids } = sampled;
  const last = ids.at(-1)!;
  const ended = text.stopIds.includes(last) || text.endIds.includes(last);
  const said = ended ? ids.slice(0, -1) : ids;
  const thinkingOpenedByPrompt = endsInReasoning(promptIds, text);
  const parsed = parseTurn({
    ids,
    text,
    knownTools: toolNames,
    thinkingOpenedByPrompt,
  });
  const good = parsed.calls.filter(({ status }) => status === 'ok');
  const bad = parsed.calls.filter(({ status }) => status !== 'ok').map(({ span }) => text.decode(said.slice(...span)));
  const calls = good.map(({ span, name, argumentsJson }, i): AnswerCall => {
    const id = `call_${promptIds.length + span[0]}_${i}`;
    return { id, name: name!, argumentsJson: argumentsJson! };
  });
  return {
    ...sampled,
    content: beforeStop([parsed.content, ...bad].filter((piece) => piece !== '').join('\n'), stops),
    reasoning: parsed.reasoning,
    reasoningTokens: parsed.reasoning === null ? 0 : countReasoning(said, thinkingOpenedByPrompt, text),
    calls,
    rawText: text.decode(said),
    finish: !ended && !stopped ? 'length' : calls.length > 0 ? 'tool_calls' : 'stop',
  };
}
