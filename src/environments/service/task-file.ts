// The JSONL file of a service's tasks: a NeMo Gym dataset row, or what OpenEnv's reset is called with, on each line.
// Not a dataset of ours: what a line holds is handed on as it stands. Invariant: ids are unique and are a function of
// the file's name and text; a line that could not be rolled out is refused before anything is started.
import { EnvError, PlanError } from '../../lib/errors.ts';
import { readRow } from '../nemo-gym/row.ts';
import { readOpenEnvTask } from '../openenv/task.ts';
import type { Task } from '../port.ts';
import type { ServiceProtocolName } from './choice.ts';
import { excerpt } from './faults.ts';
import { parseWireJson, type WireValue } from './wire-json.ts';

/** An integer that would lose digits on its way to the service; null if there is none. */
function largeInteger(value: WireValue): bigint | null {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? null : value;
  const members = Array.isArray(value) ? value : value instanceof Map ? [...value.values()] : [];
  for (const member of members) {
    const found = largeInteger(member);
    if (found !== null) return found;
  }
  return null;
}

/**
 * The tasks of a file, in its order. `label` names it in messages, and its last part in ids: `<name>:<line>`, or
 * `<name>:<_ng_task_index>` where a row has one. Throws PlanError `bad-row`, naming file, line, value and remedy, and
 * `no-tasks` for a file without a line.
 */
export function readTasks(protocol: ServiceProtocolName, label: string, text: string): Task[] {
  const name = label.slice(label.lastIndexOf('/') + 1);
  const lines = new Map<string, number>();
  const tasks: Task[] = [];
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const refuse = (rest: string) => new PlanError('bad-row', `reading ${label}, line ${i + 1}: ${rest}`);
    let payload: unknown;
    try {
      payload = JSON.parse(line);
    } catch (error) {
      const found = `found ${excerpt(line.trim())} (${(error as Error).message})`;
      throw refuse(`${found}; wanted one JSON object on each line. Correct the line.`);
    }
    if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) {
      throw refuse(`found ${excerpt(line.trim())}; wanted a JSON object. Correct the line.`);
    }
    const large = /\d{16}/.test(line) ? largeInteger(parseWireJson(line)) : null;
    if (large !== null) {
      throw refuse(`found the integer ${large}; wanted one within 2^53, as others lose digits. Write it as a string.`);
    }
    const index = protocol === 'nemo-gym' ? (payload as Record<string, unknown>)['_ng_task_index'] : undefined;
    const task = { id: `${name}:${typeof index === 'number' ? index : i + 1}`, payload: payload as Task['payload'] };
    const before = lines.get(task.id);
    if (before !== undefined) {
      const found = `found the id ${task.id}, which line ${before} has`;
      throw refuse(`${found}; wanted one of its own, because each task is one group. Remove the repeated row.`);
    }
    lines.set(task.id, i + 1);
    try {
      if (protocol === 'openenv') readOpenEnvTask(task);
      else readRow(task.id, payload);
    } catch (error) {
      if (!(error instanceof EnvError)) throw error;
      throw refuse(error.message);
    }
    tasks.push(task);
  }
  if (tasks.length > 0) return tasks;
  throw new PlanError(
    'no-tasks',
    `reading ${label}: found no line; wanted a task on each. Give the JSONL file of the ${protocol} tasks.`,
  );
}
