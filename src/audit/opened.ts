// Audit contexts of a service's own tasks: prompt and tools as the service gave them when the task was opened.
// Not a replay: nobody but the service can score its tasks, so that verdicts are checked for sense alone.
// Invariant: prompt and tools come from the openings and never from the rollout's record.
import type { Task } from '../environments/port.ts';
import type { Opening } from '../environments/service/openings.ts';
import type { Text } from '../model/text.ts';
import type { AuditContext, AuditSettings, ExpectedLabels } from './context.ts';
import { suffixRule } from './suffix.ts';

/** What the model is shown for a call that is not dispatched, in an environment that is not the German task. */
export const OWN_INVALID_CALL = '{"error":"invalid tool call"}';

/** Contexts under one tokenizer and one configuration; null for a task without an opening. */
export function openedContexts(
  text: Text,
  settings: AuditSettings,
): (task: Task, opening: Opening | undefined, expected?: ExpectedLabels) => AuditContext | null {
  const suffixes = suffixRule(text, settings.enableThinking);
  return (task, opening, expected = {}) => {
    if (!opening) return null;
    const { messages, tools } = opening;
    return {
      text,
      task,
      promptIds: text.renderPrompt({ messages, tools, enableThinking: settings.enableThinking }),
      tools: tools.map((tool) => tool.function.name),
      stopIds: text.stopIds,
      endIds: text.endIds,
      settings,
      replay: null,
      expected,
      suffixes,
    };
  };
}
