// The German lookup/calculator task as an OpenEnv environment of tools.
// Not a copy of the task: it is the environment of src/ behind the protocol. Invariant: list_tools names the two tools
// alone; `verify`, which scores, is called by the trainer and never listed, and an instance scores once.
import { germanTools } from '../../src/environments/german-data.ts';
import { createGermanEnvironment } from '../../src/environments/german-environment.ts';
import { devTasks, finalTasks, SPLITS, type Split, trainTasks } from '../../src/environments/german-task.ts';
import type { EnvironmentPort, OpenedSession, Task } from '../../src/environments/port.ts';
import { fromWire, toWire, type WireMap } from '../../src/environments/service/wire-json.ts';
import type { EnvironmentClass, EnvironmentInstance, ToolBox, ToolOutcome } from './openenv-environment.ts';
import { CALL_TOOL_OBSERVATION_SCHEMA, CALL_TOOL_SCHEMA } from './openenv-schemas.ts';
import { callToolResult } from './openenv-tools.ts';
import { PythonError } from './python-errors.ts';

/** The hidden tool that scores a session. */
export const GERMAN_VERDICT_TOOL = 'verify';
/** `split`/`seed`/`index` choose a task below this index: making one makes all before it. */
const MAX_INDEX = 4096;

const makers: Readonly<Record<Split, (seed: number, count: number) => Task[]>> = {
  train: trainTasks,
  dev: devTasks,
  final: finalTasks,
};

const refuse = (message: string): never => {
  throw new PythonError('ValueError', message);
};

/** The task that reset asks for: a whole one (`task`, `task_id`), or one by `split`, `seed` and `index`. */
function chooseTask(kwargs: WireMap): Task {
  const plain = fromWire(kwargs) as Record<string, unknown>;
  if (plain['task'] !== undefined && plain['task'] !== null) {
    const id = plain['task_id'] ?? plain['episode_id'] ?? 'task';
    return { id: String(id), payload: plain['task'] as Record<string, unknown> };
  }
  const split = (plain['split'] ?? 'train') as Split;
  const seed = Number(plain['seed'] ?? 0);
  const index = Number(plain['index'] ?? 0);
  if (!SPLITS.includes(split)) refuse(`split must be one of ${SPLITS.join(', ')}`);
  if (!(Number.isInteger(index) && index >= 0 && index < MAX_INDEX)) refuse(`index must be in 0..${MAX_INDEX - 1}`);
  return makers[split](seed, index + 1)[index]!;
}

const toolSchemas = germanTools().map(({ function: { name, description, parameters } }) => ({
  name,
  title: name,
  description,
  inputSchema: toWire(parameters),
  outputSchema: toWire({ type: 'object', properties: { result: { type: 'string' } }, required: ['result'] }),
}));

interface Live {
  port: EnvironmentPort;
  opened: OpenedSession;
  task: Task;
  episodeId: string;
  steps: number;
}

async function score(live: Live, args: WireMap): Promise<ToolOutcome> {
  const { final_text: finalText, invalid_dispatches: invalid } = fromWire(args) as Record<string, unknown>;
  if (typeof finalText !== 'string' || !Number.isInteger(invalid)) {
    return { ok: false, type: 'invalid_args', message: 'final_text: str and invalid_dispatches: int are required' };
  }
  const verdict = await live.port.verify(live.opened.sessionId, finalText, invalid as number);
  const { strict, reward, parts, toolErrors, answer, log } = verdict;
  const data = toWire({ strict, reward, parts, tool_errors: toolErrors, answer, log }) as WireMap;
  return { ok: true, result: callToolResult(data), reward, done: true };
}

function createInstance(): EnvironmentInstance {
  let live: Live | null = null;
  let scored = false;
  let closed = false;
  const box: ToolBox = {
    list: () => toolSchemas,
    async call(name, args, metadata) {
      if (!live || scored) {
        const message = scored ? 'the session was scored already; reset it' : 'call reset() before step()';
        return { ok: false, type: 'execution_error', message };
      }
      live.steps += 1;
      if (name === GERMAN_VERDICT_TOOL) {
        scored = true;
        return score(live, args);
      }
      if (!toolSchemas.some((tool) => tool.name === name)) {
        return { ok: false, type: 'tool_not_found', message: `Unknown tool: '${name}'` };
      }
      // The text as the policy wrote it, where the client sends it: its length is part of the task.
      const own = metadata?.get('arguments_json');
      const text = typeof own === 'string' ? own : JSON.stringify(fromWire(args));
      const { content, error } = await live.port.call(live.opened.sessionId, name, text);
      if (error) return { ok: false, type: 'execution_error', message: content };
      return { ok: true, result: callToolResult(content) };
    },
  };
  return {
    async reset(kwargs) {
      const task = chooseTask(kwargs);
      const port = createGermanEnvironment();
      const opened = await port.open(task);
      const episodeId = kwargs.get('episode_id');
      live = { port, opened, task, episodeId: typeof episodeId === 'string' ? episodeId : opened.sessionId, steps: 0 };
      scored = false;
      return { observation: toWire({ messages: opened.messages }) as WireMap, reward: null, done: false };
    },
    step() {
      throw new PythonError('RuntimeError', 'an environment of tools takes list_tools and call_tool');
    },
    async state() {
      if (!live) return toWire({ episode_id: null, step_count: 0 }) as WireMap;
      const log = await live.port.log(live.opened.sessionId);
      const state = { episode_id: live.episodeId, step_count: live.steps, task_id: live.task.id, log };
      return toWire(state) as WireMap;
    },
    close() {
      closed = true;
      live = null;
    },
    tools: () => (closed ? null : box),
  };
}

/** The class. reset takes `task` and `task_id`, or `split`, `seed` and `index`. */
export function germanEnvironmentClass(version: string): EnvironmentClass {
  return {
    name: 'GermanLookupEnvironment',
    description: 'German lookup and calculator task: look two goods up, calculate, answer with "Antwort: <integer>".',
    version,
    factoryName: 'GermanLookupEnvironment',
    resetParameters: ['seed', 'episode_id', 'task_id', 'task', 'split', 'index'],
    action: null,
    actionSchema: CALL_TOOL_SCHEMA,
    observationSchema: CALL_TOOL_OBSERVATION_SCHEMA,
    create: createInstance,
  };
}
