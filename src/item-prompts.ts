// The prompts of generated episodes and of math items, and how long the longest of them is in tokens.
// Not a rollout: no session is opened. Invariant: a prompt here has the messages and tools that the item is asked with.
import { germanTools } from './environments/german-data.ts';
import { promptOf, readPayload } from './environments/german-task.ts';
import type { Message, Task, ToolSpec } from './environments/port.ts';
import type { Text } from './model/text.ts';

export const mathInstruction = 'Schließe mit einer Zeile der Form „Antwort: <Zahl>“ ab.';

interface ItemPrompt {
  id: string;
  messages: Message[];
  tools: readonly ToolSpec[];
}

export interface LongestPrompt {
  /** The first of the longest. */
  id: string;
  tokens: number;
}

export function mathMessages(question: string): Message[] {
  return [{ role: 'user', content: `${question}\n${mathInstruction}` }];
}

export function mathPrompts(items: readonly { id: string; question: string }[]): ItemPrompt[] {
  return items.map(({ id, question }) => ({ id, messages: mathMessages(question), tools: [] }));
}

/** Prompts of the German task, whoever serves it. */
export function germanPrompts(tasks: readonly Task[]): ItemPrompt[] {
  return tasks.map((task) => ({ id: task.id, messages: promptOf(readPayload(task)), tools: germanTools() }));
}

/** The longest of one prompt or more. */
export function longestPrompt(text: Text, prompts: readonly ItemPrompt[], enableThinking: boolean): LongestPrompt {
  return prompts
    .map(({ id, messages, tools }) => ({
      id,
      tokens: text.renderPrompt({ messages, tools, enableThinking }).length,
    }))
    .reduce((longest, prompt) => (prompt.tokens > longest.tokens ? prompt : longest));
}
