// Prompt ids of a conversation. Where an assistant's turn carries its token ids, they are the state: what the model
// said is never encoded again, and only what follows that turn is added, as the template writes it between turns.
// Not a repair: histories whose ids contradict each other are refused. Invariant: the prompt of a conversation that
// goes on from an answer begins with that answer's prompt and generated ids.
import { ModelFileError } from '../lib/errors.ts';
import type { Text } from '../model/text.ts';
import { badRequest } from './api-error.ts';
import type { Conversation, TurnMessage } from './conversation.ts';

const startsWith = (ids: readonly number[], prefix: readonly number[]): boolean =>
  ids.length >= prefix.length && prefix.every((id, i) => ids[i] === id);

/** The ids that the prompt begins with and the last message that they cover, or null where there are none. */
function stateOf({ messages, requiredPrefix }: Conversation): { ids: number[]; last: number } | null {
  let state: { ids: number[]; last: number } | null = null;
  for (const [i, { tokens }] of messages.entries()) {
    if (!tokens) continue;
    if (state && !startsWith(tokens.promptIds, state.ids)) {
      throw badRequest(`messages[${i}].prompt_token_ids`, {
        found: 'ids that do not begin with the prompt and the answer of the turn before',
        wanted: 'one growing history',
        remedy: 'Send the turns back unchanged, or leave the token ids of the history out.',
        code: 'token_ids_not_contiguous',
      });
    }
    state = { ids: [...tokens.promptIds, ...tokens.generationIds], last: i };
  }
  if (!requiredPrefix) return state;
  const last = messages.findLastIndex(({ message }) => message.role === 'assistant');
  if (last < 0) {
    throw badRequest('required_prefix_token_ids', {
      found: 'a prefix for messages without an assistant turn',
      wanted: 'an assistant turn that the prefix ends with',
      remedy: 'Leave the prefix out of a first request.',
    });
  }
  return { ids: [...requiredPrefix], last };
}

/** Refuses ids that stand for nothing. */
function checkIds(ids: readonly number[], text: Text): void {
  const missing = new Set(text.missingIds);
  const bad = ids.find((id) => id >= text.vocabularySize || missing.has(id));
  if (bad === undefined) return;
  throw badRequest('prompt_token_ids', {
    found: `token id ${bad}`,
    wanted: `ids of this model, below ${text.vocabularySize}`,
    remedy: 'Token ids belong to the model that gave them: leave those of another one out.',
  });
}

/** `index` just after the `count`-th stop id, or null. */
function afterStop(ids: readonly number[], count: number, text: Text): number | null {
  let seen = 0;
  for (const [i, id] of ids.entries()) {
    if (text.stopIds.includes(id) && ++seen === count) return i + 1;
  }
  return null;
}

const plain = (messages: readonly TurnMessage[]) => messages.map(({ message }) => message);

/** What stands between the covered turns and the next assistant turn, and the stop id that ends the former. */
function suffixOf(conversation: Conversation, last: number, text: Text): { stop: number; ids: number[] } {
  const { messages, tools, enableThinking } = conversation;
  const rest = messages.slice(last + 1);
  const [imEnd] = text.stopIds;
  if (imEnd !== undefined && rest.length > 0 && rest.every(({ message }) => message.role === 'tool')) {
    const observations = rest.map(({ message }) => message.content ?? '');
    return { stop: imEnd, ids: text.toolSuffix(observations, enableThinking) };
  }
  // Templates may write earlier turns otherwise once others follow, so places are counted in turn ends, not in ids.
  const before = text.renderPrompt({
    messages: plain(messages.slice(0, last + 1)),
    tools,
    enableThinking,
    addGenerationPrompt: false,
  });
  const all = text.renderPrompt({ messages: plain(messages), tools, enableThinking });
  const count = before.filter((id) => text.stopIds.includes(id)).length;
  const at = count === 0 ? null : afterStop(all, count, text);
  if (at === null) {
    throw badRequest('messages', {
      found: 'turns after token ids that the chat template does not end with a stop token',
      wanted: 'a template in which each turn ends with one',
      remedy: 'Leave the token ids of the history out.',
    });
  }
  return { stop: all[at - 1]!, ids: all.slice(at) };
}

/** Ids of a conversation, up to where the assistant's next turn begins. Throws ApiError for what cannot be rendered. */
export function promptOf(conversation: Conversation, text: Text): number[] {
  const { messages, tools, enableThinking } = conversation;
  try {
    const state = stateOf(conversation);
    if (!state) return text.renderPrompt({ messages: plain(messages), tools, enableThinking });
    checkIds(state.ids, text);
    const suffix = suffixOf(conversation, state.last, text);
    const ended = text.stopIds.includes(state.ids.at(-1)!);
    return [...state.ids, ...(ended ? [] : [suffix.stop]), ...suffix.ids];
  } catch (error) {
    // The files were read when the server started: what fails now is this conversation.
    if (!(error instanceof ModelFileError)) throw error;
    throw badRequest('messages', {
      found: error.message,
      wanted: "a conversation that the model's chat template takes",
      remedy: 'Change the order or the roles of the messages.',
      code: 'template_refused',
    });
  }
}
