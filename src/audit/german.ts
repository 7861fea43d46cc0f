// Audit contexts of the German task: prompt, tools and replayer from the task alone.
// Not from the record and not from the session that was rolled out. Invariant: one context a task, made once.
import { germanTools } from '../environments/german-data.ts';
import { replayEpisode } from '../environments/german-replay.ts';
import { promptOf, readPayload } from '../environments/german-task.ts';
import type { Task } from '../environments/port.ts';
import type { Text } from '../model/text.ts';
import type { AuditContext, AuditSettings, ExpectedLabels } from './context.ts';
import { suffixRule } from './suffix.ts';

/** The contexts of German tasks under one tokenizer and one configuration; `expected` may differ from call to call. */
export function germanContexts(
  text: Text,
  settings: AuditSettings,
): (task: Task, expected?: ExpectedLabels) => AuditContext {
  const tools = germanTools();
  const suffixes = suffixRule(text, settings.enableThinking);
  const prompts = new Map<string, number[]>();
  const promptIds = (task: Task) => {
    const known = prompts.get(task.id);
    if (known) return known;
    const { enableThinking } = settings;
    const ids = text.renderPrompt({ messages: promptOf(readPayload(task)), tools, enableThinking });
    prompts.set(task.id, ids);
    return ids;
  };
  return (task, expected = {}) => ({
    text,
    task,
    promptIds: promptIds(task),
    tools: tools.map((tool) => tool.function.name),
    stopIds: text.stopIds,
    endIds: text.endIds,
    settings,
    replay: replayEpisode,
    expected,
    suffixes,
  });
}
