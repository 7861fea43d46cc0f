// The German task's episodes in the forms that the two protocols take.
// Not the task itself. Invariant: the table, which is the answer key, goes to the service alone and into no prompt.
import { germanTools } from '../german-data.ts';
import { promptOf, readPayload } from '../german-task.ts';
import type { Task } from '../port.ts';

/** A NeMo Gym dataset row: prompt and tools, and the episode as a verifier column. */
export function germanRow(task: Task): Record<string, unknown> {
  const payload = readPayload(task);
  return {
    responses_create_params: {
      input: promptOf(payload),
      tools: germanTools().map(({ function: { name, description, parameters } }) => ({
        type: 'function',
        name,
        description,
        parameters,
        strict: false,
      })),
    },
    task_id: task.id,
    verifier_metadata: payload,
  };
}

/** Arguments of an OpenEnv reset. */
export function germanReset(task: Task): Record<string, unknown> {
  return { task_id: task.id, task: readPayload(task) };
}
