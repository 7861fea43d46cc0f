// A task of an OpenEnv environment: what reset is called with, and messages that precede the first observation.
// Not an observation. Invariant: reset's arguments go to the service and into no prompt.
import { z } from 'zod';
import { EnvError } from '../../lib/errors.ts';
import { issuesText } from '../../lib/zod-issues.ts';
import type { Message, Task } from '../port.ts';
import { messageList } from './content.ts';

const openEnvTask = z.strictObject({
  payload: z.strictObject({
    /** Keyword arguments of reset; `episode_id` is the client's. */
    reset: z.record(z.string(), z.unknown()).optional(),
    messages: messageList.optional(),
  }),
});

export interface OpenEnvTask {
  reset: Record<string, unknown>;
  messages: Message[];
}

/** Reads a payload. Throws EnvError `bad-task` naming task, field and value. */
export function readOpenEnvTask({ id, payload }: Task): OpenEnvTask {
  const parsed = openEnvTask.safeParse({ payload });
  const refuse = (found: string, wanted: string) =>
    new EnvError('bad-task', `reading task ${id}: ${found}; wanted ${wanted}. Correct the task.`);
  if (!parsed.success)
    throw refuse(issuesText(parsed.error, { payload }), '{"reset": {...}, "messages": [...]}, both optional');
  const { reset = {}, messages = [] } = parsed.data.payload;
  if ('episode_id' in reset) {
    const found = `"payload.reset.episode_id": found ${JSON.stringify(reset['episode_id'])}`;
    throw refuse(found, 'none, because the client names each session itself');
  }
  return { reset, messages };
}
